"""Which messages of a chat the model is given when the context cannot hold them all.

Whole turns are left out, the oldest first; the system prompt, what is pinned and the last user message stay. What was
read of a chat can be used again only up to the first token that differs, so a cut that moved with every turn would cost
reading nearly the whole context each time. A cut is therefore made deep, to half of what the context has free for
turns, and then stays where it is until the chat has grown to the context's end again: the turns in between extend one
and the same prefix, and behind each cut every token is read once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from inference.messages import Message, TokenId
from inference.prompt import Prompt, PromptBuilder
from inference.request import (
    ContextFit,
    ContextPolicy,
    ContextRule,
    EngineError,
    ErrorCode,
    GenerationRequest,
)

# Before a reply begins it should have this part of the context, or this many tokens if that is less.
_REPLY_SHARE = 8
_MOST_REPLY_ROOM = 512
# How often the chat is cut again because its template wrote more than the lengths of the messages told.
_MOST_BUILDS = 2


@dataclass(frozen=True, slots=True)
class ContextSize:
    """n_ctx: tokens that the context holds. n_ctx_train: that the model was trained for."""

    n_ctx: int
    n_ctx_train: int
    kv_bytes_per_token: int


@dataclass(frozen=True, slots=True)
class FittedPrompt:
    """prompt: with the begun reply, begun_ids, behind it. fit: None for raw text."""

    prompt: Prompt
    begun_ids: tuple[TokenId, ...]
    fit: ContextFit | None


def message_sizes(prompt: Prompt) -> list[int]:
    """Tokens from the beginning of each message's text to that of the next, with what the template puts between."""
    places = sorted((start, index) for index, start in enumerate(prompt.message_starts) if start is not None)
    sizes = [0] * len(prompt.message_starts)
    for (start, index), end in zip(
        places, [*(start for start, _ in places[1:]), len(prompt.token_ids)], strict=False
    ):
        sizes[index] = end - start
    return sizes


def turn_starts(messages: Sequence[Message]) -> list[int]:
    """Indices of the messages that begin a turn: a user message, with those right behind it, and its replies."""
    starts: list[int] = []
    before = None
    for index, message in enumerate(messages):
        if message.role == "system":
            continue
        if not starts or (message.role == "user" and before != "user"):
            starts.append(index)
        before = message.role
    return starts


def kept_messages(messages: Sequence[Message], pinned: Sequence[int]) -> frozenset[int]:
    """Indices of what is never left out. A pinned reply keeps its question: templates want one before each reply."""
    kept = {index for index, message in enumerate(messages) if message.role == "system"}
    for index in pinned:
        if not 0 <= index < len(messages):
            continue
        kept.add(index)
        while index > 0 and messages[index].role == "assistant":
            index -= 1
            kept.add(index)
    return frozenset(kept)


def plan_fit(
    messages: Sequence[Message],
    sizes: Sequence[int],
    num_prompt_tokens: int,
    size: ContextSize,
    rule: ContextRule,
    reply_room: int,
) -> ContextFit:
    """sizes: tokens that each message takes (message_sizes). num_prompt_tokens: of the whole chat, a begun reply and
    the template's own text included. reply_room: tokens that are to be free where turns are left out.

    The whole chat wherever it fits; else the former cut as long as that fits; else the first cut that brings the chat
    down to half of what the kept messages leave free, or the deepest that there is.
    """
    kept = kept_messages(messages, rule.pinned)
    cuts = turn_starts(messages)[1:]

    def fit(cut: int, *, is_allowed: bool) -> ContextFit:
        left_out = tuple(index for index in range(cut) if index not in kept)
        num_sent = num_prompt_tokens - sum(sizes[index] for index in left_out)
        return ContextFit(
            num_prompt_tokens,
            num_sent,
            size.n_ctx,
            size.n_ctx_train,
            size.kv_bytes_per_token,
            cut,
            left_out,
            is_allowed and num_sent <= size.n_ctx,
        )

    may_drop = rule.policy is ContextPolicy.DROP_OLDEST
    most = size.n_ctx - (reply_room if may_drop and cuts else 0)
    whole = fit(0, is_allowed=True)
    if num_prompt_tokens <= most or not cuts:
        return whole
    former = fit(rule.former_cut, is_allowed=True) if rule.former_cut in cuts else None
    if former is not None and former.num_sent_tokens <= most:
        return former
    deeper = [cut for cut in cuts if former is None or cut > former.cut] or cuts[-1:]
    deepest = fit(cuts[-1], is_allowed=may_drop)
    never_cut = deepest.num_sent_tokens - sum(sizes[i] for i in range(cuts[-1], len(sizes)) if i not in kept)
    target = never_cut + (size.n_ctx - never_cut) // 2
    planned = (fit(cut, is_allowed=may_drop) for cut in deeper)
    chosen = next((plan for plan in planned if plan.num_sent_tokens <= target), deepest)
    if not chosen.is_possible and num_prompt_tokens <= size.n_ctx:
        return whole
    return chosen


def count_prompt(builder: PromptBuilder, request: GenerationRequest, size: ContextSize) -> ContextFit:
    """How the request would fit, from one prompt that is built for it. Raises EngineError."""
    return _Fitting(builder, request, size).plan()


def fit_prompt(builder: PromptBuilder, request: GenerationRequest, size: ContextSize) -> FittedPrompt:
    """The prompt to read, built again without the messages that are left out. Raises EngineError."""
    if request.messages is None:
        prompt = builder.build(request)
        if len(prompt.token_ids) > size.n_ctx:
            raise EngineError(ErrorCode.PROMPT_TOO_LONG, _too_long("the prompt", len(prompt.token_ids), size))
        return FittedPrompt(prompt, (), None)
    return _Fitting(builder, request, size).fit()


class _Fitting:
    def __init__(self, builder: PromptBuilder, request: GenerationRequest, size: ContextSize) -> None:
        self._builder, self._request, self._size = builder, request, size
        self._messages = request.messages or ()
        self._whole = builder.build(request)
        self._begun_ids = () if request.begun is None else builder.begun_ids(request.begun, self._whole)
        self._sizes = message_sizes(self._whole)

    def plan(self, surplus: int = 0) -> ContextFit:
        """surplus: tokens that the template writes more than the sizes tell."""
        max_tokens = self._request.sampling.max_tokens
        room = min(self._size.n_ctx // _REPLY_SHARE, _MOST_REPLY_ROOM)
        num_tokens = len(self._whole.token_ids) + len(self._begun_ids)
        if num_tokens > self._size.n_ctx:
            num_tokens += surplus
        return plan_fit(
            self._messages,
            self._sizes,
            num_tokens,
            self._size,
            self._request.context,
            room if max_tokens is None else min(room, max_tokens),
        )

    def fit(self) -> FittedPrompt:
        surplus = 0
        for _ in range(_MOST_BUILDS):
            fit = self.plan(surplus)
            if not fit.is_allowed:
                break
            if not fit.left_out:
                return self._fitted(self._whole, fit)
            left_out = set(fit.left_out)
            sent = tuple(message for index, message in enumerate(self._messages) if index not in left_out)
            prompt = self._builder.build(replace(self._request, messages=sent))
            num_sent = len(prompt.token_ids) + len(self._begun_ids)
            if num_sent <= self._size.n_ctx:
                return self._fitted(prompt, replace(fit, num_sent_tokens=num_sent))
            surplus += num_sent - fit.num_sent_tokens
        raise self._refusal(replace(fit, is_allowed=False))

    def _fitted(self, prompt: Prompt, fit: ContextFit) -> FittedPrompt:
        prompt = replace(
            prompt,
            token_ids=[*prompt.token_ids, *self._begun_ids],
            # Those of messages that are left out are known too.
            message_ids=self._whole.message_ids,
        )
        return FittedPrompt(prompt, self._begun_ids, fit)

    def _refusal(self, fit: ContextFit) -> EngineError:
        if fit.is_possible:
            text = _too_long("the chat", fit.num_prompt_tokens, self._size)
        else:
            last = max((i for i, m in enumerate(self._messages) if m.role == "user"), default=0)
            what, num_tokens = "this message", self._sizes[last]
            if num_tokens <= self._size.n_ctx:
                num_tokens = fit.num_sent_tokens
                if self._begun_ids:
                    what += " with its reply so far"
                elif len(self._messages) - len(fit.left_out) > 1:
                    what += " with the system prompt and what is pinned"
            text = _too_long(what, num_tokens, self._size)
        return EngineError(ErrorCode.PROMPT_TOO_LONG, text, fit)


def _too_long(what: str, num_tokens: int, size: ContextSize) -> str:
    return (
        f"{what} is {num_tokens:,} tokens, the context holds {size.n_ctx:,}: "
        "shorten it, start a new chat, or choose a larger context"
    )
