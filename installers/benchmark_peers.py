"""What the benchmarks compare with: llama.cpp's own programs, built from the very source and with the very flags that the
native library is built with, once for this user."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

from installers.native_library import cache_root, compile_targets, download_sdist, unpack_source
from installers.native_recipe import CMAKE_FLAGS, compiler_in_use, recipe_for_this_system

PEERS = ("llama-bench", "llama-batched-bench", "llama-server")
# The programs are part of what is built; the library's own flags are those of the recipe.
_PEER_FLAGS = {
    "LLAMA_BUILD_COMMON": "ON",
    "LLAMA_BUILD_TOOLS": "ON",
    "LLAMA_BUILD_SERVER": "ON",
    "LLAMA_BUILD_UI": "OFF",
    "LLAMA_USE_PREBUILT_UI": "OFF",
    "LLAMA_OPENSSL": "OFF",
}


def peer_binary(name: str) -> Path:
    """One of PEERS in the user's cache. The first call builds them all (about 9 minutes on 2 cores), and so does one that
    finds some of them missing there."""
    recipe = replace(recipe_for_this_system(), flags={**CMAKE_FLAGS, **_PEER_FLAGS}, tag="peers")
    folder = cache_root() / "peers" / recipe.folder_name(compiler_in_use())
    if not all((folder / peer).exists() for peer in PEERS):
        folder.parent.mkdir(parents=True, exist_ok=True)
        log = folder.parent / "build.log"
        log.unlink(missing_ok=True)
        print(
            f"Building {', '.join(PEERS)}, once for this user (about 9 minutes on 2 cores) …\n  log: {log}",
            flush=True,
        )
        with tempfile.TemporaryDirectory(prefix=".building-", dir=folder.parent) as building:
            work = Path(building)
            source = unpack_source(download_sdist(recipe, work, log), work / "source")
            compile_targets(recipe, source, work / "build", log, PEERS)
            if folder.exists():
                os.rename(folder, work / "incomplete")
            os.rename(work / "build" / "bin", folder)
        log.unlink()  # 16 MB of compiler warnings, of use only when a build failed
    return folder / name
