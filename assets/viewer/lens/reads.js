/* What target and draft model read before the text: a picture, a caption, or nothing (multimodal speculative decoding). */
(() => {
  "use strict";
  const SV = (globalThis.SpecViz ??= /** @type {Viewer} */ ({}));
  const { count } = SV.dom;
  const { ints, say } = SV.pictures;

  function draw(host, notes, c) {
    const d = notes[0] || {},
      caption = ints(d.caption, 24),
      round = c.round || {},
      drafted = (round.draft?.nodes || []).length,
      kept = (round.commit?.path || []).length;
    host.append(
      say("The target reads " + (d.picture ? "the picture, then the text." : "the text alone: it sees no picture.")),
      say(
        caption.length
          ? "The draft model reads a caption, then the text: " +
              caption
                .slice(1)
                .map((token) => c.label(token, 14))
                .join(" ") +
              "."
          : "The draft model reads the text alone.",
      ),
    );
    if (drafted) host.append(say(count(drafted, "token") + " drafted, " + kept + " kept."));
  }

  SV.lens.reads = { title: "What was read", draw };
})();
