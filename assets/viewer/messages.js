/* Texts of the board by identifier. `{name}` is a placeholder; parts() fills it with a string or an element, say() with strings.
   Values are only ever inserted as text. Tests assert identifiers, so a wording can change here alone. */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));

  const TEXTS = {
    /* Titles of pictures (board_pictures.js) */
    "knob.gamma": "Draft length (gamma): how many tokens are guessed before one pass of the large model checks them.",
    "picture.save": "Save",
    "picture.passes": "Passes",
    "picture.tree": "Draft of the round",
    "picture.detail": "Probabilities or mask",
    "picture.rate": "Throughput",
    "picture.time": "Times",
    "numbers.open": "Numbers: probabilities, mask, log, throughput, times \u25be",
    "numbers.close": "Hide the numbers \u25b4",
    "stage.prompt": "Prompt: ",
    "picture.probabilities": "probabilities of one token",

    /* The picture before a prompt (stage.js) */
    "picture.seen": "seen by the large model only",
    "picture.hidden": "hidden from the large model",

    /* Several answers to one prompt (answers.js) */
    "answers.number": "Answer {number} of {count}",
    "answers.seed": "seed {seed}",
    "answers.greedy": "greedy",

    /* Why a token was kept, refused or written (why.js) */
    "why.kept.greedy":
      "The large model would have written the same token here, so it is kept without a pass of its own.",
    "why.kept.lossy":
      "The large model would have written another token here, but this method\u2019s rule lets the guess stand.",
    "why.kept.sampled":
      "The large model finds this token likely enough, and the random draw accepted it: it is kept without a pass of its own.",
    "why.kept.copied":
      "This guess was chosen, not drawn: it is kept with the probability the large model gives it, and the draw accepted it.",
    "why.kept.certain":
      "The large model finds this token at least as likely as the draft did, so it is kept for certain.",
    "why.kept.rule": "The method\u2019s rule accepted this guess, so it is kept without a pass of its own.",
    "why.kept.untested": "This guess was kept without a test of its own.",
    "why.refused.greedy":
      "The large model would write {other} here, so the guess is rejected and everything after it is thrown away.",
    "why.refused.sibling": "The large model would write another token here, so the guess is rejected.",
    "why.refused.sampled":
      "The large model wants this token less than the draft does, and the random draw rejected it. " +
      "What was guessed after it is thrown away.",
    "why.refused.copied":
      "This guess was chosen, not drawn: it is kept with the probability the large model gives it, and the draw rejected it. " +
      "What was guessed after it is thrown away.",
    "why.refused.rule": "The method\u2019s rule rejected this guess. What was guessed after it is thrown away.",
    "why.unseen.tree": "The text went another way before this guess, so it was never looked at.",
    "why.unseen.chain": "A guess before it was rejected, so this one was never looked at.",
    "why.unseen.cut": "The answer ended before this guess, so it was never looked at.",
    "why.unseen.probe": "It was scored for later guesses and could not be accepted.",
    "why.guess": "A guess: the large model has not looked at it yet.",
    "why.tail.bonus": "Every guess on the way was right, so the same pass gives one more token at no cost.",
    "why.tail.correction.greedy":
      "The large model\u2019s own token. It stands where the first wrong guess stood, so the " +
      "text stays the same as in plain decoding.",
    "why.tail.correction.sampled":
      "The large model rejected the guess here and drew a token of its own, from what it wants more than the guess did.",
    "plain.token": "one token a pass",
    "plain.scale": "one scale a pass",
    "round.scale.large": "One pass of the large model painted {patches}, all of this scale.",
    "round.scale.small": "One pass of the small model painted {patches}, all of this scale.",
    "why.tail.scale.large": "Nothing was guessed here: one pass of the large model gives all patches of a scale.",
    "why.tail.scale.small": "The small model painted this scale; the large one was not asked.",
    "scale.large": "large model",
    "scale.small": "small model",
    "why.tail.small": "The small model wrote this token alone; the large one was not asked.",
    "why.tail.unchecked": "This token was written without a test by the large model.",
    "why.tail.forced": "The rules left only one token here.",
    "why.tail.accepted": "The round ended with a guess that was kept, and the large model added nothing.",
    "why.tail.plain": "Nothing was guessed here: one pass of the large model, one token.",
    "why.tail.drafted": "The large model wrote this token itself, after its guesses were checked.",
    "why.token.end": "It is the end token: the answer ends here.",
    "why.token.end_refused": "It is the end token: the draft would have ended the answer here.",
    "why.token.end_unseen": "It is the end token.",
    "why.token.special": "It is a control token of the model and is not shown as text.",
    "why.token.limit": "The answer was cut here, at the limit of {limit} tokens.",
    "why.token.stop_string": "The answer ends here, at a stop text.",
    "why.token.stopped": "The run was stopped here.",
    "why.token.deadline": "The run was out of time here.",
    "why.token.context": "The model\u2019s context is full here.",

    /* The quiz (panels/learn_quiz.js): what is known before the answer, and the reason after it */
    "quiz.before.greedy": "Temperature 0: it is kept only if it is the target\u2019s first choice.",
    "quiz.before.greedy.copied": "Copied from earlier text. Kept only if it is the target\u2019s first choice.",
    "quiz.before.drawn": "Kept if a random draw falls below min(1, p/q). A likely token can still lose.",
    "quiz.before.certain": "Kept if a random draw falls below min(1, p/q), and where p is at least q that is 1.",
    "quiz.before.chosen": "Chosen by the draft, not drawn: kept with the probability that the target gives it.",
    "quiz.before.copied": "Copied from earlier text: kept with the probability that the target gives it.",
    "quiz.before.rule": "Sampled: whether it is kept is decided by this method\u2019s own rule and a random draw.",
    "quiz.after.draw": "It would stay with probability {a}; the draw was {u}.",
    "quiz.after.kept": "It was the target\u2019s first choice.",
    "quiz.after.lossy": "It was not the target\u2019s first choice, but this method\u2019s rule keeps it.",
    "quiz.after.refused": "The target wanted \u201c{other}\u201d.",
    "quiz.after.rule": "The method\u2019s rule decided it.",

    /* "Be the draft" (panels/draft_game.js) */
    "draftgame.title": "Be the draft",
    "draftgame.lead":
      "Ten places of the run on the board. Guess the next token; the large model judges, as it judged the draft.",
    "draftgame.none": "The game needs a run whose draft was checked, with the candidates of the large model recorded.",
    "draftgame.ask": "Which token comes next?",
    "draftgame.at": "Place {at} of {of}",
    "draftgame.next": "Next",
    "draftgame.end": "Your result",
    "draftgame.greedy":
      "The large model writes \u201c{right}\u201d here. The draft guessed \u201c{draft}\u201d, which was {verdict}.",
    "draftgame.drawn":
      "A guess is kept with the probability that the large model gives it: {p}. The draft guessed " +
      "\u201c{draft}\u201d, which was {verdict}.",
    "draftgame.draft.kept": "kept",
    "draftgame.draft.refused": "rejected",
    "draftgame.you": "You",
    "draftgame.draft": "The draft ({title})",
    "draftgame.score": "{kept} of {of} guesses kept",
    "draftgame.result": "{rate} kept, {tokens} tokens a round, {speed} plain decoding\u2019s speed.",
    "draftgame.result.slow": "{rate} kept, {tokens} tokens a round.",
    "draftgame.how":
      "Of these {rounds}. Tokens a round: as if every guess were kept with this share, at this draft\u2019s length; " +
      "the speed: with a guesser as quick as this draft.",
    "draftgame.again": "Play again",
    "draftgame.copy": "Copy the result",
    "draftgame.card": "the result",

    /* Under two distributions (distributions.js) */
    "dist.kept": "Accepted, so no residual is drawn.",
    "dist.z": " / Z with Z = {z}",
    "dist.scaled": ", scaled to 1",
    "dist.residual.drawn": "Residual: max(0, p \u2212 q){z}. The correction \u201c{token}\u201d was drawn from it.",
    "dist.residual.next": "Residual: max(0, p \u2212 q){z}. The next test uses it in place of p.",
    "dist.residual.chosen.drawn":
      "Residual: p without the rejected token, scaled to 1. The correction \u201c{token}\u201d was drawn from it.",
    "dist.residual.chosen.next":
      "Residual: p without the rejected token, scaled to 1. The next test uses it in place of p.",

    /* What a lesson says of the text (panels/lesson_sampling.js) */
    "lesson.same.exact": "So the text is what plain decoding would have written.",
    "lesson.same.sampled":
      "So the text follows the large model\u2019s probabilities, as in plain decoding; other draws would have given other words.",
    "lesson.same.loose": "This method may change the text, so it need not be what plain decoding would have written.",
    "lesson.checked": "the board recomputes them: {ok} of {n} agree here.",
    "lesson.unchecked": "the board recomputes them; this run drew nothing by chance, so there is none to check.",

    /* Structured output (grammar_view.js) */
    "grammar.forced":
      "The grammar leaves one token here: it is forced. It forbids {share} of the model\u2019s probability.",
    "grammar.forbade": "The grammar allows {count} tokens here and forbids {share} of the model\u2019s probability.",
    "grammar.free": "The grammar allows {count} tokens here and forbids nothing that the model gives a probability.",
    "grammar.first": "Without the grammar the first choice would be {token} ({p}).",
    "grammar.bar": "{share} of the model\u2019s probability is forbidden",

    "legend.acc": "Guessed by the draft and kept: the large model agrees. Press to show only these.",
    "legend.rej": "Guessed by the draft and rejected by the large model. Press to show only these.",
    "legend.cor": "Written by the large model in place of a rejected guess. Press to show only these.",
    "legend.bon":
      "One more token of the large model, after a round whose guesses were all kept. Press to show only these.",
    "legend.ski": "Guessed after a rejected token, so never looked at. Press to show only these.",
    "round.last_draft": " Nothing was drafted after it.",
    "notice.facts": "About this run",
    "notice.target": "target (large model) {model}",
    "notice.small": " \u00b7 small model {model}",
    "notice.draft": " \u00b7 draft (guesses) {model}",
    "limit.more": "Write on, to {longer} tokens",
    "limit.cut": "The answer was cut at the limit of {limit} tokens.",
    "circles.both":
      "The answer goes round in circles from token {at} on, in plain decoding, too: {n}, {times} times over.",
    circles: "{title} goes round in circles from token {at} on: {n}, {times} times over.",
    "rail.lost": "{rejected} rejected, {skipped} never examined",
    "headline.sampled": "{lead} of the large model, {each} tokens a pass.",
    "headline.sampled.fast": "{lead} of the large model, {each} tokens a pass: {fast}.",

    /* The numbers of the chosen token, in one line (why.js) */
    "numbers.choice": "the large model\u2019s choice: {token}",
    "numbers.nodraw": "temperature 0, no draw",
    "numbers.p": "target p {p}",
    "numbers.p.small": "small model p {p}",
    "numbers.q": "draft q {q}",
    "numbers.accept": "kept if u is under {a}",
    "numbers.draw": "draw u {u}",
    "numbers.own": "softmax:",
    "numbers.softmax": "{token} {p}",
    "numbers.softmax.draft": "draft softmax {q}",
    "numbers.near": "{times}\u00d7 as likely as the guess",
    "softmax.note":
      "Softmax: the model\u2019s own probabilities, as they are at temperature 1. At temperature 0 only the largest counts.",

    /* Speeds and how sure they are (timing.js) */
    "timing.about": "about {value} ({low} to {high})",
    "timing.busy": "Machine busy: tokens per second are of the busy machine.",
    "timing.busy.replaced":
      "Machine busy: {replaced} of {of} passes and drafts were interrupted and count as this lane\u2019s usual one; " +
      "tokens per second are of the busy machine.",
    "timing.busy.short": "machine busy",
    "timing.busy.short.replaced": "machine busy, {replaced} of {of} passes replaced",
    "timing.wide": "The times of this run say too little about speed.",
    "timing.unnamed": "{wide} of {rows} speeds are not named: their times say too little.",
    /* Verdict of a race (verdict.js, race.js) */
    "verdict.level": "{first} and {second} are about equally fast: {speeds}",
    "verdict.once": "{first} was fastest: {speeds} of {second}",
    "verdict.once.repeat": ". One run each: repeat the run to see whether it holds.",
    "verdict.once.noise": ". One run each, so {difference} may be noise.",
    "verdict.often": "{first} won, {more} ahead of {second}: {speeds} in the median",
    "verdict.often.noise":
      "No winner: {speeds} in the median, but {first} and {second} were not apart in every pair of runs: noise",
    "verdict.repeats": " ({a}, {b} in {runs} runs each; the lanes draw the first).",
    "verdict.cut": "The lanes were cut at unequal lengths, so none is called the fastest.",
    "verdict.passes": "{title} wrote the most tokens a pass of the large model: {each}.",
    "verdict.implausible":
      "{title} was faster than its accepted length allows: the machine changed meanwhile, so no speed is named.",
    "verdict.servers": " Servers keep a clock of their own and are not ranked.",
    "race.same": " wrote the same text as plain decoding, token for token: {tokens} compared.",
    "race.price":
      " A round gave {each} tokens and cost as much as {even} plain ones; guessing took {share} % of its time.",
    "race.differs": " differs from plain decoding at token {at}: ",
    "race.server.differs":
      " writes another text than plain decoding here, from its token {at} on: another engine, maybe another model.",
    "race.server.clock":
      "Local lanes take turns on one clock; a server keeps its own, wall time at this client, and is not ranked.",

    /* Headline, notice, log and other panels of the board */
    /* Several prompts at once (batch.js) */
    "batch.so_far": "So far: {prompts} prompts at once, {tokens} of all.",
    "batch.uncounted": "{prompts} prompts at once: {tokens} of all.",
    "batch.alone": "{prompts} prompts at once: {tokens} of all in {seconds}, {rate} a second.",
    "batch.headline": "{prompts} prompts at once: {tokens} of all in {seconds}, {rate} a second; {much}.",
    "batch.faster": "{times} plain decoding\u2019s {plain}",
    "batch.level": "plain decoding\u2019s {plain} are about as many",
    "batch.slower": "plain decoding\u2019s {plain} are more",
    "batch.verdict": "{first} wrote most for all {prompts} prompts: {a} against {b} tokens per second of {second}",
    "batch.verdict.level":
      "{first} and {second} wrote about equally fast for all {prompts} prompts: {a} against {b} tokens per second",
    "batch.column": "All prompts",
    "batch.cell": "{place}. {tokens}, {rate}/s",
    "passes.start.text": "start of the text",
    "passes.start.picture": "start of the picture",
    "headline.sampled.words": "sampled: other words, drawn with the same probabilities",
    "headline.sampled.patches": "sampled: another picture, drawn with the same probabilities",
    "headline.loose.text": "sampled; this method may change the text",
    "headline.loose.picture": "sampled; this method may change the picture",
    "headline.two_writers": "{tokens}: {large} by the large model in {passes}, {small} by the small one{end}.",
    "headline.slower": "slower than plain decoding here ({value} times as fast)",
    "headline.slower.about": "slower than plain decoding here (about {value} times as fast, {low} to {high})",
    "headline.level": "no clear difference in speed",
    "headline.level.about": "no clear difference in speed ({low} to {high} times as fast)",
    "headline.fast": "{value} times as fast",
    "headline.fast.about": "about {value} times as fast ({low} to {high})",
    "headline.median": " in the median of {runs} runs",
    "opening.more": "The whole story",
    "headline.pays": "{each} tokens a round; it pays from {even} here.",
    "exchange.on":
      "So far, over {places}: a draft token is accepted with probability {accepted} ({exact} by the exact rule), and the " +
      "text\u2019s distribution is {strays} from the target\u2019s. No rule accepts more at this distance.",
    "exchange.below":
      "So far, over {places}: a draft token is accepted with probability {accepted} ({exact} by the exact rule), and the " +
      "text\u2019s distribution is {strays} from the target\u2019s. A mixture of both would accept {best} at this distance.",
    "exchange.name": "Acceptance over the distance of the text from the target",
    "exchange.axis": "distance of the text from the target (total variation)",
    "exchange.exact": "exact rule",
    "exchange.all": "accepts everything",
    "exchange.here": "this rule",
    "dial.ask": "What if 80\u202f% were accepted?",
    "dial.label": "Acceptance of a draft token",
    "dial.says": "{acceptance} accepted, {length} a draft: {tokens} tokens a pass.",
    "dial.go": "Run it",
    "headline.reason":
      "A pass over guesses costs as much as {times} plain ones, and guessing takes {share} % of the time.",
    "cut.gone": "The server does not answer. What was written is kept.",
    "cut.back": "The server stopped while it wrote this. What was written is kept; Run makes it again.",
    "headline.checking": "same text: checked at the end",
    "headline.server": "{tokens} from a server: {passes}.",
    "headline.server.passes": "{each} a pass, {badge}",
    "notice.remembered": "{copied} of the {tokens} tokens of {title} are copied from your earlier answers.",
    "notice.waits": " Until it writes, what stands here is {what}.",
    "notice.stays": " What stands here is still {what}.",
    "notice.recording": "a recording",
    "notice.before": "the run before",
    "headline.reading": "The prompt is being read: the first tokens follow.",
    "figures.along": "; by {tokens} tokens: {values}",
    "headline.same": "The same {tokens} in {passes} of the large model instead of {n}{end}.",
    "headline.same.faster": ": {fast}",
    "headline.same.slower": ", but {fast}",
    "headline.stopped": "Stopped after {tokens}, in {passes} instead of {n}.",
    "headline.stopped.same": "Stopped after {tokens}: the same so far, in {passes} instead of {n}.",
    "headline.stopped.part":
      "Stopped after {tokens}, in {passes} instead of {n}: the same for the first {same}, as far as plain decoding came.",
    "headline.same.checked": "same text: checked",
    "headline.same.so_far": "same text so far: {part}checked",
    "notice.server.clock": " A server\u2019s clock is wall time at this client.",
    "log.threads": "{threads} computed; a pass took {time} when the run began.",
    "log.threads.why":
      " A browser that paints on the same cores can make two threads slower than one, so the number is tried out before " +
      "each run, unless whoever started the server has fixed it.",
    "log.threads.again": " Passes turned slow on the way, so it was tried out anew: {threads} instead of {before}.",
    "lens.last": "Last reported in round {round}:",
    "lens.message.tokens": "This message brought {tokens}. ",
    "lens.ahead.none": "Nothing was guessed for this round: no such row stood after the last token that was kept.",
    "server.doubts": "Not believed: {doubts}.",
    "passes.block": "one block is one pass of the large model; its width is how many tokens it gave",
    "passes.block.small": "one block is one scale, painted by the large model or, outlined, by the small one",
    "passes.even": "; marked below: fewer than the round cost",
    "passes.block.several":
      "one block is one round, and some took several passes of the large model; its width is how many tokens it gave",
    "round.passes": " from {passes} passes.",
    "round.pass": " from one pass.",
    "csv.copy": "Copy as CSV",
    "csv.copied": "Copied.",
    "csv.refused": "The browser did not allow copying.",
    "figures.same_so_far": "same so far",
    "chart.empty": "Nothing yet.",
    "ribbon.prefill": "prefill: the prompt is read",
    "ribbon.draft": "draft: tokens are guessed",
    "ribbon.verify": "verify: one pass checks them",

    /* Panels (assets/panels) */
    "whatif.greedy.known":
      "The text is greedy, so no draft can change it, and this draft\u2019s guess depends on the text alone. ",
    "whatif.greedy": "The text is greedy, so no draft can change it. ",
    "whatif.longer.yes":
      "A longer draft would have been faster here: {best} give {speed}, where the recorded {recorded} gave {now}.",
    "whatif.longer.perhaps":
      "A longer draft might have been faster here: {best} give {speed}, where the recorded {recorded} gave {now}; " +
      "{last} give {end}.",
    "whatif.longer.no":
      "A longer draft would not have been faster here: {best} give {speed} at most, where the recorded {recorded} gave {now}. " +
      "Each further guess takes time and is kept less often.",
    "whatif.sampled": "This run drew its tokens by chance. ",
    "whatif.sampled.rest":
      "From there on other tokens would have been drawn, so the rest is an estimate from the same probabilities, not a replay.",
    "whatif.check":
      "Check of the sums: with the settings as recorded they give {rate} tokens per second; the " +
      "engine\u2019s clock said {measured}.",
    "methods.count": "{methods} methods, and plain decoding",
    "methods.bound": "upper bound {times}",
    "panel.empty": "Nothing measured yet",
    "contexts.about": "Measured as far as this target reads, a model beyond.",
    "contexts.even": "at about {tokens}",
    "contexts.measured": "measured up to here",
    "contexts.method": "{title}: {each} tokens a round at {at}, {speed} the speed of plain decoding there, measured; ",
    "contexts.method.beyond": "{speed} at {at}, extrapolated.",
    "hardware.about": "A model, not a measurement.",
    "chip.about":
      "A chip that accepts and rolls back draft tokens itself and keeps the draft\u2019s weights in its own memory, " +
      "beside the same chip with its host. No figure of the paper is used.",
    "chip.sums":
      "A pass takes as long as reading its weights or doing its sums, whichever is longer; a round drafts token by token, " +
      "verifies once and, with the host, waits {sync} more. Two bytes a weight; on-chip memory of 1,000 GB/s at 5 pJ a byte. " +
      "Energy counts bytes and operations only; this machine\u2019s was not measured.",
    "methods.none": "No method fits; take a word away.",
    "load.interrupted": " It was stopped before the end.",
    "load.best": "{load}: {title} wrote most, {goodput} tokens per second, with {prompts} prompts at once in a pass.",
    "load.level": "{load}: no method wrote clearly the most; {prompts} prompts at once in a pass.",
    "load.uncounted": "{load}: no speed is named; {prompts} prompts at once in a pass.",
    "history.empty": "No runs yet",
    "samples.few": "Too few samples to tell",
    "breakit.source": "A mistake put in on purpose: {title}. ",
    "scaling.few": "Too few points for the other lines. These commands make them:",
    "picture.drawn": "drawn by specviz {version}",
    "quiz.caption": " The guess: \u201c{guess}\u201d, round {round} of {title}.",
    "quiz.kept": "The target keeps it",
    "quiz.refused": "The target rejects it",
    "game.source": "Not a model: {draws} draws of a game with q = {q} and p = {p}, ",
    "predictability.none": "nobody asked the draft",
    "predictability.kinds": "Share of guesses kept, by kind of token",
    "choice.off": " \u2013 not here",

    "sweep.stopped": "Stopped: what was measured is kept.",
    "sweep.noise": "within noise {low} to {high}",
    "timing.noise": "No setting is clearly the fastest: the spreads of the turns overlap.",
  };

  const PLACE = /\{(\w+)\}/;
  /* The text as a list of strings and values. */
  function parts(id, values = {}) {
    const out = [];
    String(TEXTS[id] ?? id)
      .split(PLACE)
      .forEach((s, i) => (i % 2 ? out.push(values[s] ?? "") : s && out.push(s)));
    return out;
  }
  const say = (id, values) => parts(id, values).join("");

  SV.messages = { TEXTS, parts, say };
})();
