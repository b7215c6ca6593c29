"""All messages of the page and its endpoints, by identifier. Tests refer to identifiers, so a wording can
be changed here alone.

``Refused`` has the identifier (``code``) and the values of its message.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from ..servers.messages import one_line

SENTENCE = 300  # characters of a refusal; long input is not repeated in it

TEXTS = {
    # sizes of a request (limits.SIZES)
    "size.text": "{what} has {count:,} characters; the limit is {most:,}.",
    "size.values": "{what} holds more than {most:,} values.",
    "size.depth": "{what} is nested more than {most} levels deep.",
    "size.body": "A request holds at most {most} kB.",
    "size.stored": "A run that this server keeps has at most {most:,} kB.",
    # fields of a request
    "field.text": "{what} must be text.",
    "field.empty": "{what} is empty: write something for the model to answer.",
    "field.number": "{what} must be {kind} from {low:,} to {high:,}{unit}, not {value}.",
    "field.range": "{what} must lie between {low:,} and {high:,}{unit}, not {value}.",
    "field.methods": 'The methods must be a list of method names, or of {{"method": name, "knobs": {{knob: value}}}}.',
    "field.knobs": "The knobs must be given as {{method: {{knob: value}}}}.",
    "field.knob": "{title}: {why}.",
    "field.method": "There is no method {name}; names like it: {names}. `specviz list` shows all.",
    "field.lanes": "At most {most} lanes run at once, plain decoding among them; {count} were asked for.",
    "field.answers": "{n} answers of {lanes} lanes are too many: a run gives at most {most} answers in all.",
    "field.answers_prompts": "Several answers (n) do not go with several prompts at once: choose one of the two.",
    "field.turns": 'Earlier messages must be a list of {{"role": "user" or "assistant", "content": text}}.',
    "field.conversation": (
        "This conversation is too long to continue (at most {turns} messages and {characters:,} characters): "
        "start a new chat."
    ),
    "field.model": "The model must be given by its name.",
    "field.generation_form": "The request's further fields must be an object of fields by name.",
    "field.generation": "A request has no further field {name}; there are {names}.",
    "field.generation_server": "A server takes temperature, top-p, seed and length; {names} would be ignored there.",
    "field.draft": "There is no draft model {name!r} for this target; choose one of the list, or none.",
    "field.question": "There is no such question; there are {names}.",
    "field.details": "A question's details must be an object of at most {most:,} characters.",
    "field.seed_note": (
        "Above temperature 0, methods that decide by measured times ({titles}{more}) draw other tokens for the same seed. "
        "The i-th of several prompts at once takes seed + i."
    ),
    # the queue and an address's budget
    "queue.full": "{waiting} runs are waiting already: try again in a minute; the recorded run stays playable.",
    "queue.share": "{count} runs of this address are waiting already, its share of a busy queue: wait for one of them.",
    "queue.open_runs": "{most} runs of this address are open already: wait for one of them, or stop it.",
    "queue.ahead": "{count} {runs} before this one.",
    "budget.requests": "This address sent more than {most:,} requests in a minute: wait a little.",
    "budget.events": "{most} requests of this address are unanswered or unread already: read their answers first.",
    # how a run ends
    "run.active": "A run is under way: stop it first.",
    "run.reading": "Reading the prompt.",
    "run.repeat": "Measuring once more: {count} of {total}, {title}.",
    "run.stopped": "Stopped; what was decoded is kept.",
    "run.stopped_early": "Stopped before the first token.",
    "run.deadline": "Ended at the limit of a run, {seconds:.0f} seconds of its own work; what was decoded is kept.",
    "run.unfinished": "{title} ended without finishing; what was decoded is kept.",
    "run.lane_failed": "{title} failed: {why} The other lanes finished.",
    "run.head_unused": "{title}: none of {tried} tries of its trained head or draft was accepted. Is it for this model?",
    "run.unread": "Nobody read this for {seconds:.0f} seconds, so it was stopped.",
    "run.silent": "The engine did not answer in time and was given up.",
    "run.memory": "There is not enough memory for this: ask for fewer tokens, lanes or samples.",
    "run.crashed": "The engine failed ({error}); the next run starts afresh.",
    "run.not_finite": "The engine returned a number that is not finite; the run was ended.",
    "run.engine": "{why}",  # a refusal of the engine, in its own words
    "answer.not_finite": "The answer holds a number that is not finite.",
    # models
    "models.idle": "Models load when you begin",
    "models.loading": "{what}{so_far}{seconds}.",
    "models.progress": "{here:,.0f} of about {whole:,.0f} MB ({share:.0%}) here",
    "models.compiling": "compiling for this processor, once only ({share:.0%})",
    "models.start": "Loading the models",
    "models.another": "Another model is loaded first",
    "models.memory": "There is not enough memory here to load this model.",
    "models.failed": "The models could not be loaded ({error}).",
    "models.fetch_off": "This server fetches no models for visitors: choose one that is here.",
    "models.fetch_failed": "The model could not be fetched: {why}.",
    "models.fetch_slow": "The model arrives too slowly, so fetching it was ended: try again later.",
    "models.fetch_left": "Nobody waited for the model any more, so fetching it was ended.",
    "models.disc": "The model needs about {need:,.1f} GB, and this server's disc has {free:,.1f} GB free.",
    "models.unloaded": "The model was unloaded to make place for another one: ask once more.",
    "models.not_loaded": "This model could not be loaded.",
    "models.next": "{title}{draft} loads with the next run",
    "models.next_unknown": "The model loads with the next run",
    "models.wrong_draft": "{draft} cannot draft for this model here: left out, so the model's own draft guesses.",
    "models.accelerator": "{why}. The recorded runs stay playable.",
    "models.no_gpu": "no GPU here: about {rate} tokens/s",
    "models.fits_gpu": "fits this {gpu}, {size} GB",
    "models.too_large": "{name} does not fit here. {why}{hub}",
    # the conversation
    "chat.placeholder": "A question, some code\u2026",
    "chat.next": "Follow up, or run again",
    "chat.answer": "{title}, answer {number}",
    "chat.new": "A new conversation. The next prompt begins it.",
    "chat.nothing_to_edit": "There is no finished message to edit.",
    "chat.turn_busy": "That turn can be opened once this run is over.",
    "chat.turn_gone": "The record of that turn is no longer kept.",
    "page.port": "Port {wanted} is in use: the page is at port {port}.",
    "board.empty": "Write a prompt and press Run.",
    # knobs
    "knob.pair": "{name} {choice} goes with {other} {allowed}, not with {value}: change {change} first.",
    "knob.server": "a server has no knobs",
    # HTTP
    "http.host": "This server does not answer under that name: whoever runs it may add the name to SPECVIZ_HOSTS.",
    "http.file": "The page has no such file.",
    "http.route": "There is nothing here: the page is at /, and programs use /run, /compare and /methods.",
    "http.malformed": "Malformed request.",
    "http.endpoint": "There is no such endpoint; there are {names}.",
    "http.arguments": '/{name} takes {{"data": [{arguments}]}}.',
    "http.slow": "The request did not arrive within {seconds:.0f} seconds.",
    # runs that the server keeps for links
    "stored.trace": "This is not a trace: {why}",
    "stored.gone": "This server keeps no run of this name, or no longer.",
    "stored.busy": "The server is storing other runs: try again in a minute.",
    "stored.folder": "The server cannot write to the folder of its runs.",
    "stored.route": "A run is stored with POST /runs, as application/gzip or application/jsonl, and read with GET /runs/HASH.",
    # recordings
    "recording.unsteady": "The machine changed its speed during the run ({lanes}): record again when it is quiet.",
    "recording.name": "There is no recording {name!r}; there are {names}.",
    # the OpenAI-compatible endpoint
    "openai.field": "{field} is not supported by this server.",
    "openai.value": "{field} must be {form}.",
    "openai.model": "There is no model {name!r}; there are {names}.",
    "openai.messages": "messages must be a list of 1 to {most} objects with a role (system, user, assistant or tool) and a text content; "
    "the last one is the user's, a tool's, or the beginning of an answer.",
    "openai.key": "This server needs an API key: Authorization: Bearer KEY.",
    "openai.route": "There is no such route; there are /v1/models, /v1/chat/completions, /v1/completions and /v1/traces/ID.",
    "openai.trace": "This trace is no longer kept.",
}


def text(code: str, /, **values: Any) -> str:
    """Return the message of an identifier with its values filled in."""
    return TEXTS[code].format(**values)


def shorten(words: Any, most: int = SENTENCE) -> str:
    """Return text from outside on one line, of at most ``most`` characters, without control or direction
    characters."""
    return one_line(words, most)


def close_names(asked: Any, names: Iterable[str]) -> str:
    """Return up to five of the names that are most like what was asked for, as text."""
    known = list(names)
    text = str(asked)[:60].lower()
    close = difflib.get_close_matches(text, known, 5, 0.5) + [one for one in known if text and text in one]
    return ", ".join(list(dict.fromkeys(close))[:5] or known[:5])


class Refused(ValueError):
    """A request was refused, or a run ended early. ``code``: the identifier of its message in TEXTS."""

    def __init__(self, code: str, /, **values: Any):
        super().__init__(text(code, **values))
        self.code, self.values = code, values

    @classmethod
    def of(cls, error: BaseException) -> Refused:
        """Return an engine error as Refused, with its message and, if it has one, its identifier."""
        refused = cls("run.engine", why=shorten(str(error), 2 * SENTENCE))
        refused.code = getattr(error, "code", None) or refused.code
        return refused

    def __reduce__(self) -> tuple[Any, ...]:  # pickled between processes on ZeroGPU
        return _rebuild, (type(self), self.code, self.values, str(self))


def _rebuild(kind: type[Refused], code: str, values: dict[str, Any], sentence: str) -> Refused:
    refused = kind("run.engine", why=sentence)
    refused.code, refused.values = code, values
    return refused
