"""Chats out to files and in from those of other programs. Imports no Qt."""

from desktop.exchange.errors import ExchangeError
from desktop.exchange.exporting import ExportChoice, ExportFormat, export_chats, suggested_name
from desktop.exchange.importing import ImportProgress, add_incoming, import_chats
from desktop.exchange.incoming import IncomingChat
from desktop.exchange.report import ImportReport, ReportEntry

__all__ = [
    "ExchangeError",
    "ExportChoice",
    "ExportFormat",
    "ImportProgress",
    "ImportReport",
    "IncomingChat",
    "ReportEntry",
    "add_incoming",
    "export_chats",
    "import_chats",
    "suggested_name",
]
