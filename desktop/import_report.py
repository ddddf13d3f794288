"""What an import brought in and what not, to be read and copied."""

from __future__ import annotations

from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import (
    QFont,
    QGuiApplication,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
)
from PySide6.QtWidgets import (
    QDialog,
    QDialogButtonBox,
    QLabel,
    QPushButton,
    QTextEdit,
    QVBoxLayout,
    QWidget,
)

from desktop.exchange import ImportReport
from desktop.quantities import format_count

_ENTRY_MARGIN_PX = 8
_HANGING_PX = 16


class ImportReportWindow(QDialog):
    """Beside the chat window, which can be used meanwhile."""

    def __init__(self, report: ImportReport, parent: QWidget) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle("Import report")
        self._text = report.text()
        self.summary = QLabel(report.summary())
        self.summary.setTextFormat(Qt.TextFormat.PlainText)
        self.summary.setWordWrap(True)
        self.summary.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.details = QTextEdit()
        self.details.setDocument(_document(report, self.details))
        self.details.setObjectName("import_report")
        self.details.setAccessibleName("Chats of the import")
        self.details.setReadOnly(True)
        self.details.setTabChangesFocus(True)
        self.copy_button = QPushButton("&Copy report")
        self.copy_button.clicked.connect(lambda: QGuiApplication.clipboard().setText(self._text))
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close)
        buttons.addButton(self.copy_button, QDialogButtonBox.ButtonRole.ActionRole)
        buttons.rejected.connect(self.reject)
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 16, 16, 12)
        column.setSpacing(12)
        column.addWidget(self.summary)
        column.addWidget(self.details, 1)
        column.addWidget(buttons)
        self.resize(640, 460)


def _document(report: ImportReport, parent: QObject) -> QTextDocument:
    """Text only: what is inserted as text is never taken for markup."""
    document = QTextDocument(parent)
    document.setDocumentMargin(10)
    cursor = QTextCursor(document)
    heading, entry = QTextBlockFormat(), QTextBlockFormat()
    heading.setBottomMargin(4)
    # Lines that go on in a second one hang under the first.
    entry.setLeftMargin(_ENTRY_MARGIN_PX + _HANGING_PX)
    entry.setTextIndent(-_HANGING_PX)
    entry.setBottomMargin(2)
    bold, plain = QTextCharFormat(), QTextCharFormat()
    bold.setFontWeight(QFont.Weight.DemiBold)
    for title, entries in report.sections():
        _add_block(cursor, f"{title} ({format_count(len(entries))})", heading, bold)
        heading.setTopMargin(12)
        for line in entries:
            _add_block(cursor, line.line(), entry, plain)
    if report.num_left_out:
        _add_block(cursor, f"… and {format_count(report.num_left_out)} more", heading, plain)
    return document


def _add_block(cursor: QTextCursor, text: str, block: QTextBlockFormat, characters: QTextCharFormat) -> None:
    if cursor.document().isEmpty():
        cursor.setBlockFormat(block)
    else:
        cursor.insertBlock(block)
    cursor.insertText(text, characters)
