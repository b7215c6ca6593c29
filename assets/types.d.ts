/** Types of the page's scripts, for `npm run types` only. A trace is described in docs/TRACE.md; what may come from outside is
 * `unknown` until shape.js has checked it. Modules of the namespaces that are not listed here are `any`. */

/* ---- the trace, after shape.js ---- */
type Probs = [token: number, probability: number][];
type Span = { t0: number; t1: number };
type Verdict = "accepted" | "rejected" | "skipped";
interface DraftNode {
  id: number;
  parent: number; // -1: the root
  tok: number; // -1: unknown
  q: number | null;
  how: string;
  top: Probs | null;
  src: { source: string; start: number | null; end: number | null } | null;
  probe: boolean;
  depth: number;
  kids: number[];
}
interface Judgement {
  node: number;
  rule: string;
  p: number | null;
  q: number | null;
  a: number | null;
  u: number | null;
  verdict: Verdict;
  top_p: Probs | null;
  resid: Probs | null;
  softmax_p: number | null;
  top_softmax: Probs | null;
}
interface Tail {
  tok: number;
  why: string; // "bonus", "correction", "accepted", "plain", or a rule's own
  p: number | null;
  top: Probs | null;
  softmax_p: number | null;
  top_softmax: Probs | null;
}
interface Commit {
  t: number | null;
  path: number[];
  n_new: number;
  kv: { before: number; after: number; dropped: number } | null;
  tail: Tail;
}
interface Header {
  mode: "live" | "recorded" | "simulated";
  clock: "engine" | "client";
  knobs: Record<string, unknown>;
  method: { key: string; title: string; family: string; exactness: string; bound: boolean };
  prompt: { text: string; ids: number[]; turns: { role: string; text: string }[] };
  target: { name: string; parameters: number | null; nature: string | null } | null;
  draft: { name: string } | null;
  max_new_tokens: number;
  output: { kind: "text" } | { kind: "patches"; columns: number; rows: number; side: number };
  picture: { src: string; hidden: boolean } | null; // before the prompt
  sampling: Record<string, unknown>;
  answer?: { index: number; of: number }; // one of several answers to one prompt (n)
  about?: { title: string; text: string }; // what a shipped recording shows
  [field: string]: unknown;
}

/* ---- the trace, folded (fold.js) ---- */
interface Totals {
  rounds: number;
  tokens: number;
  passes: number;
  drafted: number;
  accepted: number;
  tried: number;
  rejected: number;
  skipped: number;
  examined: number;
  bonus: number;
  correction: number;
  plain: number;
  agree: number;
  checked: number;
  rows: number;
  t: number;
  seconds: number | null; // null: a round came without its timing
  parts: number[];
}
interface Round {
  i: number;
  draft: (Span & { kind: string; nodes: DraftNode[] }) | null;
  nodes: DraftNode[];
  kind: string;
  verify: (Span & { n_in: number }) | null;
  passes: number;
  rows: number;
  judges: Map<number, Judgement>;
  tests: number[];
  trials: Judgement[];
  commit: Commit | null;
  path: number[];
  why: string;
  pieces: { tok: number; b: string }[] | null;
  first: number;
  upto: number;
  timing: { parts: number[]; ns: number } | null;
  lens: { kind: string; data: Record<string, any> }[];
  sum: Totals | null;
  seen: Map<number, boolean> | null; // by depth: whether a tested node was accepted
}
interface Token {
  i: number;
  tok: number;
  round: number;
  node: number | "tail";
  v: string;
  parts: Part[];
  carry: number[] | null;
  special: boolean;
}
interface Lane {
  id: number;
  header: Header | null;
  vocab: Map<number, string>;
  labels: Map<string, string>;
  special: Set<number>;
  prefill: (Span & { n: number }) | null;
  rounds: Round[];
  ends: (number | null)[];
  tokens: Token[];
  carry: number[];
  committed: number;
  seen: number;
  lastSeq: number;
  lens: number;
  checks: { kind: string; detail: Record<string, any> }[];
  stop: { why: string } | null;
  error: { why: string } | null;
  done: { finish: string; totals: Record<string, any> } | null;
  last: number;
  byDepth: { k: number; pos: [tried: number, accepted: number][] } | null;
}
interface Folded {
  lanes: Map<number, Lane>;
  order: number[];
  records: number;
  bad: number;
}
type Cursor = "end" | { round: number; phase: number } | { t: number };
type Place = { k: number; phase: number };

/* ---- text (text.js) ---- */
type Part = string | { c: string; px?: number[]; side?: number }; // {c}: a chip, for what must not be shown as it is; px: of a patch (output.js)

/* ---- speeds (speed.js) ---- */
interface TimedRound {
  tokens: number;
  passes: number;
  rows: number;
  verify: number;
  nodes: number;
  depth: number;
  draft: number;
  rest: number;
}
interface Steady {
  tokens: number;
  seconds: number[];
  verify: number[];
  draft: number[];
  replaced: number;
  of: number;
}
interface LaneTimes {
  steady: Steady;
  runs: { tokens: number; seconds: number }[];
  tokensPerPass: number | null;
}
interface Speed {
  value: number | null;
  low: number | null;
  high: number | null;
  replaced: number;
  of: number;
  named: boolean;
  clear: boolean;
}

/* ---- the modules that the others build on ---- */
type Child = Node | string | number | false | null | undefined | Child[];
type Attributes = Record<string, any> | null;
interface Viewer {
  text: {
    visible(text: string): Part[];
    decode(bytes: number[] | Uint8Array): { parts: Part[]; carry: number[] };
    alone(bytes: number[] | Uint8Array): Part[];
    bytesOf(b64: unknown): number[];
    byteChip(byte: number): Part;
    joined(parts: Part[]): string;
    label(parts: Part[], max?: number): string;
    hash(value: unknown): string;
  };
  reader: { read(input: unknown): { records?: any[]; why?: string } };
  shape: { shape(record: unknown): any; num(x: unknown): number | null; PARTS: string[] };
  totals: {
    TAIL: Record<string, string>;
    zero(): Totals;
    totals(round: Round, before: Totals, timed: boolean): Totals;
    byDepth(lane: Lane, k: number): [number, number][];
  };
  fold: {
    initial(): Folded;
    step(state: Folded, raw: unknown): Folded;
    fold(records: Iterable<unknown>, state?: Folded): Folded;
    at(lane: Lane, cursor: Cursor): Place;
    picture(lane: Lane, cursor: Cursor): Record<string, any>;
    verdictOf(round: Round, id: number, phase?: number): "dra" | "acc" | "rej" | "ski";
    tailNode(round: Round): number | null;
    label(lane: Lane, token: number, max?: number): string;
    startOf(lane: Lane, round: number): number;
    endOf(lane: Lane, round: number): number | null;
    sumAt(lane: Lane, k: number): Totals;
    upto(lane: Lane, k: number): number;
    zero(): Totals;
  };
  speed: {
    steady(rounds: TimedRound[]): Steady;
    speedup(plain: LaneTimes, ours: LaneTimes): Speed;
    medianInterval(values: number[]): [low: number, high: number];
    randomFractions(seed: number): () => number;
    median(list: number[]): number;
    isBusy(replaced: number, of: number): boolean;
    CLOSE: number;
    SLACK: number;
    WIDEST: number;
  };
  timing: {
    decodeSeconds(lane: Lane, k: number): number | null;
    ownRate(lane: Lane, k: number): number | null;
    runsOf(lane: Lane): number[];
    BASELINE: string;
    keyOf(lane: Lane): string;
    isBaseline(lane: Lane): boolean;
    turns(lanes: Lane[]): number;
    against(lane: Lane, plain: Lane, free?: boolean, most?: number): Speed | null; // free: not bound by its tokens per pass
    steadyOf(lane: Lane): Steady;
    replaced(lanes: Lane[]): { replaced: number; of: number };
    busy(lanes: Lane[]): boolean;
    busySentence(lanes: Lane[]): string;
    busyWords(lanes: Lane[]): string;
    words(speed: Speed): string;
    doubt(lanes: Lane[]): string;
    plausible(speedup: number | null, tokensPerPass: number | null): boolean;
    remarks(
      rows: Record<string, any>[],
      doubtful: (row: Record<string, any>) => boolean,
      lost: unknown,
      runs: unknown,
    ): string;
    clearBest(list: { low?: number; high?: number; value: number; [more: string]: any }[]): Record<string, any> | null;
  };
  messages: { say(id: string, values?: Record<string, string | number>): string; [name: string]: any };
  [module: string]: any;
}

declare var SpecViz: Viewer;
declare var SpecVizBoard: {
  mount(root: Element, options?: { frames?: string; trace?: any; options?: Record<string, any> }): any;
  attach?(
    element: Element,
    watch: (name: string, changed: () => void) => void,
    props: any,
    options?: Record<string, any>,
  ): any;
};
declare var SpecVizPanels: any;
declare var Plotly: any;

/* ---- the page ---- */
interface Window {
  SpecVizPage: any;
  SpecVizPanels: any;
  SpecViz: Viewer;
  gradio_config: any;
}
interface Element {
  closest(selector: `.pg-${string}`): HTMLElement | null;
  svBoard?: any; // set by the board's component
}
interface EventTarget {
  closest?(selector: string): HTMLElement | null; // an event comes from an element, or from the document, which has none
}
interface ParentNode {
  // Fields are named by their tag at the end; classes of the page and of the panels are on HTML elements only.
  querySelector(selector: `${string} input`): HTMLInputElement | null;
  querySelector(selector: `${string} textarea`): HTMLTextAreaElement | null;
  querySelector(selector: `${string} button`): HTMLButtonElement | null;
  querySelector(selector: `.pg-${string}` | `.sv-${string}` | `${string} .sv`): HTMLElement | null;
  querySelector(selector: `.sidebar-${string}` | "#board .sv"): HTMLElement | null;
  querySelector(selector: `.toggle-button`): HTMLButtonElement | null;
  querySelector(selector: `#host-${string}`): HTMLElement | null;
  querySelectorAll(selector: `.pg-${string}`): NodeListOf<HTMLElement>;
}

/* What Gradio gives to the script of a component, which is the body of a function. */
declare const element: HTMLElement;
declare const props: Record<string, any>;
declare function trigger(event: string, data?: unknown): void;
declare function watch(names: string | string[], changed: () => void): void;

/* Names that the picker's files share: they are joined into one function (specviz/ui/board.py). */
type Card = Record<string, any>;
type ChosenLane = { method: string; knobs: Record<string, any> };
declare const SHAPES: Record<string, string>;
declare function make(tag: string, name?: string, text?: string): any;
declare function button(name: string, text: string, press: (event: Event) => void): HTMLButtonElement;
declare function glyph(name: string): SVGElement;
declare function times(x: number): string;
declare function knobWord(card: Card, lane: ChosenLane, lanes?: ChosenLane[]): string;
declare function published(card: Card): Record<string, any> | null;
declare function another(card: Card, lanes: ChosenLane[]): ChosenLane | null;
declare function trayOf(parts: Record<string, any>): { root: HTMLElement; paint(): void };
declare function shelf(parts: Record<string, any>): {
  page: HTMLElement;
  open(from: HTMLElement): void;
  close(): void;
  paint(): void;
};
