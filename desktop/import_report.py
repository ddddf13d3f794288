"""What an import brought in and what not, to be read and copied."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import (
    QDialog,
    QDialogButtonBox,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from desktop.exchange import ImportReport


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
        self.details = QPlainTextEdit(report.details())
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
