"""The schema, as numbered steps. A step that was released is never edited; a change is a new step."""

from __future__ import annotations

from sqlite_utils import Database
from sqlite_utils.migrations import Migrations

from desktop.conversations.errors import DatabaseUnusable
from desktop.conversations.search_words import indexed_words

migrations = Migrations("everwarm.conversations")


@migrations()
def m001_conversations_and_messages(db: Database) -> None:
    # AUTOINCREMENT: settings and open views remember ids, which must not come to mean another chat after a purge.
    # Times are microseconds since 1970 UTC. `sampling` is JSON: it is read whole and will gain members.
    db.execute(
        """
        CREATE TABLE conversations (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            title TEXT NOT NULL,
            created_at INTEGER NOT NULL,
            updated_at INTEGER NOT NULL,
            model_path TEXT,
            sampling TEXT,
            head_id INTEGER,
            draft TEXT NOT NULL DEFAULT '',
            deleted_at INTEGER,
            FOREIGN KEY (id, head_id) REFERENCES messages (conversation_id, id)
        ) STRICT
        """
    )
    # The two-column keys make SQLite itself refuse a parent or a head from another conversation.
    # Counts and timings are columns, so that they can be plotted and summed by a query.
    # token_ids: int32, little-endian. The long columns come last: walking the tree then leaves their pages alone.
    db.execute(
        """
        CREATE TABLE messages (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            conversation_id INTEGER NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
            parent_id INTEGER,
            role TEXT NOT NULL,
            status TEXT NOT NULL,
            created_at INTEGER NOT NULL,
            updated_at INTEGER NOT NULL,
            error TEXT,
            model_path TEXT,
            sampling TEXT,
            seed INTEGER,
            finish_reason TEXT,
            num_prompt_tokens INTEGER,
            reused_tokens INTEGER,
            restored_tokens INTEGER,
            prefilled_tokens INTEGER,
            queued_s REAL,
            load_s REAL,
            tokenize_s REAL,
            restore_s REAL,
            prefill_s REAL,
            ttft_s REAL,
            decode_s REAL,
            e2e_s REAL,
            num_generation_tokens INTEGER,
            decode_tokens_per_second REAL,
            content TEXT NOT NULL,
            token_ids BLOB,
            UNIQUE (conversation_id, id),
            FOREIGN KEY (conversation_id, parent_id) REFERENCES messages (conversation_id, id)
        ) STRICT
        """
    )
    db.execute("CREATE INDEX messages_by_parent ON messages (conversation_id, parent_id)")
    db.execute("CREATE INDEX messages_streaming ON messages (id) WHERE status = 'streaming'")


@migrations()
def m002_owners_private_chats_and_receipts(db: Database) -> None:
    # An owner is what the engine knows a chat by. Unlike an id it never comes back, not even in a new database beside
    # an old KV store. Those of purged chats wait here until the engine has surely been told to forget them.
    db.execute("ALTER TABLE conversations ADD COLUMN owner TEXT NOT NULL DEFAULT ''")
    db.execute("ALTER TABLE conversations ADD COLUMN is_private INTEGER NOT NULL DEFAULT 0")
    db.execute("UPDATE conversations SET owner = lower(hex(randomblob(16)))")
    db.execute("CREATE UNIQUE INDEX conversations_by_owner ON conversations (owner)")
    db.execute("CREATE TABLE owners_to_forget (owner TEXT PRIMARY KEY) STRICT, WITHOUT ROWID")
    # Null: a reply from before receipts, or one that missed nothing.
    for column in (
        "bytes_read INTEGER",
        "miss_reason TEXT",
        "miss_position INTEGER",
        "miss_prompt_text TEXT",
        "miss_stored_text TEXT",
    ):
        db.execute(f"ALTER TABLE messages ADD COLUMN {column}")


@migrations()
def m003_pinned_chats(db: Database) -> None:
    db.execute("ALTER TABLE conversations ADD COLUMN is_pinned INTEGER NOT NULL DEFAULT 0")


@migrations()
def m004_reasoning(db: Database) -> None:
    # Null: the reply has none.
    for column in (
        "reasoning_tokens INTEGER",
        "reasoning_s REAL",
        "reasoning_was_cut INTEGER",
        "reasoning TEXT",
    ):
        db.execute(f"ALTER TABLE messages ADD COLUMN {column}")


@migrations()
def m005_full_context(db: Database) -> None:
    # context_fit: JSON, see context_memory.KeptFit; null: the reply is from before, or was never begun.
    db.execute("ALTER TABLE conversations ADD COLUMN context_choice TEXT NOT NULL DEFAULT 'ask'")
    db.execute("ALTER TABLE messages ADD COLUMN is_pinned INTEGER NOT NULL DEFAULT 0")
    db.execute("ALTER TABLE messages ADD COLUMN context_fit TEXT")


@migrations()
def m006_chat_settings_and_templates_used(db: Database) -> None:
    # From here on conversations.sampling is JSON of what the chat sets itself, and nothing else.
    db.execute("ALTER TABLE conversations ADD COLUMN system_prompt TEXT NOT NULL DEFAULT ''")
    db.execute("ALTER TABLE conversations ADD COLUMN template TEXT")
    db.execute("ALTER TABLE conversations ADD COLUMN template_options TEXT NOT NULL DEFAULT '{}'")
    # Null: a reply from before, or one that was never begun.
    db.execute("ALTER TABLE messages ADD COLUMN template_source TEXT")
    db.execute("ALTER TABLE messages ADD COLUMN template_mends TEXT")


@migrations()
def m007_imported_chats(db: Database) -> None:
    # Null: not imported. The origin is the chat's name where it came from, the digest what was in it then.
    db.execute("ALTER TABLE conversations ADD COLUMN origin TEXT")
    db.execute("ALTER TABLE conversations ADD COLUMN origin_digest TEXT")
    db.execute("CREATE INDEX conversations_by_origin ON conversations (origin) WHERE origin IS NOT NULL")


@migrations()
def m008_search(db: Database) -> None:
    # No text is kept twice: the index holds words only, and is told by triggers, with a function of this program
    # (search_words.py), so that no write can forget it. A reply that streams is indexed when it ends, be it at the next
    # start. prefix: one to three letters begin so many words that these are kept as words of their own.
    options = "content = '', columnsize = 0, prefix = '1 2 3', tokenize = 'unicode61 remove_diacritics 2'"
    db.execute(f"CREATE VIRTUAL TABLE messages_fts USING fts5 (content, reasoning, {options})")
    db.execute(f"CREATE VIRTUAL TABLE conversations_fts USING fts5 (title, {options})")
    # SQLite only marks words of deleted rows as deleted. 'deleted': there are some; 'merging': they are being removed.
    db.execute("CREATE TABLE search_upkeep (state TEXT NOT NULL) STRICT")
    db.execute("INSERT INTO search_upkeep VALUES ('clean')")
    add = "INSERT INTO messages_fts (rowid, content, reasoning) SELECT {0}id, search_words({0}content), search_words({0}reasoning)"
    remove = (
        add.format("old.").replace("(rowid", "(messages_fts, rowid").replace("SELECT", "SELECT 'delete',")
    )
    forget = "UPDATE search_upkeep SET state = 'deleted'"
    db.execute(
        f"""
        CREATE TRIGGER messages_fts_insert AFTER INSERT ON messages WHEN new.status <> 'streaming' BEGIN
            {add.format("new.")};
        END
        """
    )
    db.execute(
        f"""
        CREATE TRIGGER messages_fts_update AFTER UPDATE OF content, reasoning, status ON messages
        WHEN (old.status = 'streaming') <> (new.status = 'streaming')
            OR new.status <> 'streaming' AND (new.content <> old.content OR new.reasoning IS NOT old.reasoning)
        BEGIN
            {remove} WHERE old.status <> 'streaming';
            {add.format("new.")} WHERE new.status <> 'streaming';
        END
        """
    )
    db.execute(
        f"""
        CREATE TRIGGER messages_fts_delete AFTER DELETE ON messages WHEN old.status <> 'streaming' BEGIN
            {remove};
            {forget};
        END
        """
    )
    add = "INSERT INTO conversations_fts (rowid, title) VALUES ({0}id, search_words({0}title))"
    remove = (
        add.format("old.").replace("(rowid", "(conversations_fts, rowid").replace("(old", "('delete', old", 1)
    )
    optimize = "INSERT INTO conversations_fts (conversations_fts) VALUES ('optimize')"
    for name, event, actions in (
        ("insert", "INSERT", (add.format("new."),)),
        # Few and short: what was a title is gone at once.
        ("update", "UPDATE OF title", (remove, add.format("new."), optimize)),
        ("delete", "DELETE", (remove, forget)),
    ):
        when = "WHEN new.title <> old.title" if name == "update" else ""
        body = "; ".join(actions)
        db.execute(
            f"CREATE TRIGGER conversations_fts_{name} AFTER {event} ON conversations {when} BEGIN {body}; END"
        )
    db.execute(
        "INSERT INTO messages_fts (rowid, content, reasoning) "
        "SELECT id, search_words(content), search_words(reasoning) FROM messages WHERE status <> 'streaming'"
    )
    db.execute(
        "INSERT INTO conversations_fts (rowid, title) SELECT id, search_words(title) FROM conversations"
    )


@migrations()
def m009_folders_and_archive(db: Database) -> None:
    # is_on_top: listed first, which costs nothing; is_pinned (m003) keeps what the engine has of a chat on disk.
    db.execute("CREATE TABLE folders (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL) STRICT")
    db.execute(
        "ALTER TABLE conversations ADD COLUMN folder_id INTEGER REFERENCES folders (id) ON DELETE SET NULL"
    )
    db.execute("ALTER TABLE conversations ADD COLUMN is_archived INTEGER NOT NULL DEFAULT 0")
    db.execute("ALTER TABLE conversations ADD COLUMN is_on_top INTEGER NOT NULL DEFAULT 0")
    db.execute(
        "CREATE INDEX conversations_by_folder ON conversations (folder_id) WHERE folder_id IS NOT NULL"
    )


@migrations()
def m010_titles(db: Database) -> None:
    # 'words': the first ones of its first message; 'user', 'model': whoever wrote the title.
    db.execute("ALTER TABLE conversations ADD COLUMN titled_by TEXT NOT NULL DEFAULT 'words'")


def check_schema(db: Database) -> None:
    """Reads only. Raises DatabaseUnusable if the schema is another program's or a newer version's."""
    with Database(memory=True, execute_plugins=False) as empty:  # where every step is pending
        known = {migration.name for migration in migrations.pending(empty)}
    applied = {migration.name for migration in migrations.applied(db)}
    if applied - known:
        raise DatabaseUnusable(
            "The chats were written by a newer Everwarm and nothing was changed. "
            "Install the newer version again to open them."
        )
    # SQLite's own tables are not listed; the migrations' table comes before the first migration.
    if not applied and set(db.table_names()) - {Migrations.migrations_table, "sqlite_sequence"}:
        raise DatabaseUnusable(
            "The chats file is a database of another program and nothing was changed. "
            "Move it away, then start again."
        )


def migrate(db: Database) -> None:
    """Bring the schema up to date; safe to repeat. Raises DatabaseUnusable as check_schema does."""
    check_schema(db)
    # Migrations and triggers call it.
    db.conn.create_function("search_words", 1, indexed_words, deterministic=True)
    migrations.apply(db)
