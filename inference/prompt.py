"""From a request to prompt token ids; a message's ids depend on its text alone, and are kept with it."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from inference.chat_template import ChatTemplate, ChatText, check_template, options_of
from inference.llama.vocab import Vocab
from inference.message_marks import Segment
from inference.messages import Message, TokenId
from inference.reply_text import begun_ids
from inference.request import EngineError, ErrorCode, GenerationRequest
from inference.template_choice import TemplateChoice, choices, choose
from inference.template_info import TemplateInfo, TemplateUse
from inference.template_mends import Mend
from inference.template_options import TemplateOption
from inference.template_process import shared_template_process

# What templates put between messages is nearly always the same few texts.
_MAX_REMEMBERED_TEXTS = 1024
# A chat's prompt is built when the chat is opened, while the next message is typed, and when it is sent.
_MAX_REMEMBERED_PROMPTS = 4


@dataclass(frozen=True, slots=True)
class Prompt:
    """Positions count tokens from the beginning; a position p stands between token p - 1 and token p.

    message_ends: where stored blocks close, ascending: before each message's text, so that the system prompt with
    all that the template puts around it is one piece, and before the generation prompt.
    system_end: the first of them where the chat begins with a system prompt. user_end: before the generation prompt;
    where the template does not tell that apart, behind the last message's text.
    message_ids: for each message of the request the ids that its content became, to be given back with the message;
    None where the template changed or dropped the content. Empty for raw text.
    message_starts: for each message of the request where its text begins; None where it cannot be told.
    reply_opening: the text behind the last message's, which may open the reply's reasoning (ReasoningSplitter takes
    it). template: None for raw text. mends: what was done to the chat for the template to take it.
    """

    token_ids: list[TokenId]
    message_ends: tuple[int, ...] = ()
    system_end: int | None = None
    user_end: int | None = None
    message_ids: tuple[tuple[TokenId, ...] | None, ...] = ()
    message_starts: tuple[int | None, ...] = ()
    reply_opening: str = ""
    template: TemplateChoice | None = None
    mends: tuple[Mend, ...] = ()

    @property
    def template_use(self) -> TemplateUse | None:
        return None if self.template is None else TemplateUse(self.template.source, self.mends)


class PromptBuilder:
    """Builds prompts for one loaded model. chat_templates: template sources by name, as in the GGUF."""

    def __init__(self, vocab: Vocab, chat_templates: Mapping[str, str]) -> None:
        self._vocab = vocab
        self._chat_templates = chat_templates
        self._choices: dict[str | None, TemplateChoice] = {}
        self._templates: dict[str, ChatTemplate] = {}
        self._chat_prompts: OrderedDict[Hashable, Prompt] = OrderedDict()
        self._template_ids = lru_cache(_MAX_REMEMBERED_TEXTS)(self._tokenise_template_text)
        if chat_templates:
            # While the model is loading, so that the first message need not wait for it.
            shared_template_process().warm_up()

    def template_choice(self, override: str | None = None) -> TemplateChoice:
        """Which template a request with this chat_template is written with. Raises EngineError."""
        if override not in self._choices:
            self._choices[override] = choose(
                self._chat_templates, override, self._vocab.has_token, check_template
            )
        return self._choices[override]

    def template_info(self) -> TemplateInfo:
        """What requests can choose from, and what they get without a choice."""
        source: str | None
        try:
            choice = self.template_choice()
            source, reason = choice.source, choice.reason
        except EngineError as error:
            source, reason = None, str(error)
        options = {choice.source: self._options(choice) for choice in choices(self._chat_templates)}
        readable = {source: known for source, known in options.items() if known is not None}
        return TemplateInfo(
            source, reason, tuple(readable), {source: known for source, known in readable.items() if known}
        )

    def _options(self, choice: TemplateChoice) -> tuple[TemplateOption, ...] | None:
        """None: it cannot be read. Built-in ones have none."""
        return options_of(choice.jinja) if choice.jinja in self._chat_templates.values() else ()

    def build(self, request: GenerationRequest) -> Prompt:
        """The prompt, with one BOS in front if the model wants it. Raises EngineError."""
        if request.prompt is not None:
            prompt = Prompt(self._vocab.with_bos(self._vocab.tokenize(request.prompt)))
        else:
            prompt = self._remembered_chat_prompt(request)
        if not prompt.token_ids:
            raise EngineError(ErrorCode.PROMPT_EMPTY, "there is nothing to read: the prompt is empty")
        return prompt

    def _remembered_chat_prompt(self, request: GenerationRequest) -> Prompt:
        # True and 1 are written differently.
        options = tuple((name, repr(value)) for name, value in sorted(request.template_options.items()))
        key = (request.messages, request.chat_template, request.template_time, options)
        prompt = self._chat_prompts.pop(key, None)
        if prompt is None or (request.template_time is None and _asks_for_the_time(prompt)):
            prompt = self._chat_prompt(request, request.messages or ())
        self._chat_prompts[key] = prompt
        if len(self._chat_prompts) > _MAX_REMEMBERED_PROMPTS:
            self._chat_prompts.popitem(last=False)
        return prompt

    def _chat_prompt(self, request: GenerationRequest, messages: tuple[Message, ...]) -> Prompt:
        if not messages:
            raise EngineError(ErrorCode.PROMPT_EMPTY, "there is nothing to read: the chat has no messages")
        choice = self.template_choice(request.chat_template)
        text = self._chat_template(choice).write(
            messages,
            keep_bos=self._vocab.adds_bos,
            options=request.template_options,
            now=request.template_time,
        )
        self._check_lost(text, messages)
        segments = _joined(text.segments)
        reply_opening = segments[-1].text if segments and segments[-1].message_index is None else ""
        token_ids: list[TokenId] = []
        starts: dict[int, int] = {}
        message_ids: list[tuple[TokenId, ...] | None] = [None if m.content else () for m in messages]
        for place, segment in enumerate(segments):
            if segment.message_index is not None:
                ids = self._content_ids(segment.text, messages[segment.message_index])
                starts.setdefault(segment.message_index, len(token_ids))
                if segment.text == messages[segment.message_index].content:
                    message_ids[segment.message_index] = ids
            else:
                ids = self._template_ids(segment.text, place == 0)
                if place == len(segments) - 1:
                    starts[len(messages)] = len(token_ids) + self._num_before(ids, segment.text, text)
            token_ids += ids
        with_bos = self._vocab.with_bos(token_ids)
        shift = len(with_bos) - len(token_ids)
        ends = {index: position + shift for index, position in starts.items()}
        return Prompt(
            with_bos,
            message_ends=tuple(sorted({end for end in ends.values() if 0 < end < len(with_bos)})),
            system_end=ends.get(1) if messages[0].role == "system" else ends.get(0),
            user_end=ends.get(len(messages)),
            message_ids=tuple(message_ids),
            message_starts=tuple(ends.get(index) for index in range(len(messages))),
            reply_opening=reply_opening,
            template=choice,
            mends=text.mends,
        )

    def begun_ids(self, begun: Message, prompt: Prompt) -> tuple[TokenId, ...]:
        """The ids of a reply to the prompt that is to go on."""
        return begun_ids(self._vocab, begun, prompt.reply_opening)

    def _content_ids(self, text: str, message: Message) -> tuple[TokenId, ...]:
        """The message's own ids if they still spell exactly the text that stands in the prompt, or else the text's."""
        ids = message.token_ids
        if ids and self._vocab.spelled_text(ids) == message.content:
            if text != message.content and text == message.content.strip():
                # The template trims: where the ids have white space as tokens of its own, the others are the text's.
                ids = self._trimmed(ids)
            if text == message.content or self._vocab.spelled_text(ids) == text:
                return ids
        return tuple(self._vocab.tokenize_inside(text, parse_special=False))

    def _trimmed(self, ids: tuple[TokenId, ...]) -> tuple[TokenId, ...]:
        kept = [place for place, token in enumerate(ids) if self._vocab.piece(token).strip()]
        return ids[kept[0] : kept[-1] + 1] if kept else ()

    def _tokenise_template_text(self, text: str, is_first: bool) -> tuple[TokenId, ...]:
        if is_first:
            return tuple(self._vocab.tokenize(text))
        return tuple(self._vocab.tokenize_inside(text, parse_special=True))

    def _num_before(self, token_ids: Sequence[TokenId], text: str, written: ChatText) -> int:
        """How many of the tokens stand before the generation prompt, the end of their text. One that reaches over
        belongs to it. 0 where it cannot be told apart."""
        tail = written.generation_prompt
        if not tail or not text.endswith(tail):
            return 0
        tail_ids = self._template_ids(tail, False)
        if token_ids[len(token_ids) - len(tail_ids) :] == tail_ids:
            return len(token_ids) - len(tail_ids)
        ends = list(accumulate(len(self._vocab.written_piece(token)) for token in token_ids))
        return bisect_right(ends, ends[-1] - len(tail.encode("utf-8", "replace")))

    def _check_lost(self, text: ChatText, messages: Sequence[Message]) -> None:
        """Contents that cannot be told from template text are read as such, which no control token may profit from."""
        for index in sorted(text.lost):
            if self._vocab.spells_control_token(messages[index].content):
                raise EngineError(
                    ErrorCode.TEMPLATE_FAILED,
                    f"message {index + 1} has text that reads like one of the model's control tokens, and the chat "
                    "template rewrites it: change the message, or choose another template",
                )

    def _chat_template(self, choice: TemplateChoice) -> ChatTemplate:
        template = self._templates.get(choice.jinja)
        if template is None:
            bos, eos = self._vocab.special_text(self._vocab.bos), self._vocab.special_text(self._vocab.eos)
            template = self._templates[choice.jinja] = ChatTemplate(choice.jinja, bos, eos)
        return template


def _asks_for_the_time(prompt: Prompt) -> bool:
    return prompt.template is None or "strftime_now" in prompt.template.jinja


def _joined(segments: Sequence[Segment]) -> list[Segment]:
    """Template text that stands side by side, as one: a border between texts is no border between tokens."""
    joined: list[Segment] = []
    for segment in segments:
        if joined and joined[-1].message_index is None and segment.message_index is None:
            joined[-1] = Segment(joined[-1].text + segment.text, None)
        else:
            joined.append(segment)
    return joined
