import { join } from "node:path";

/** What a client gets, and is charged, for one recorded answer. Each value was read in the recording itself. */
export interface Row {
  /** As `recordedAnswers` names it. */
  readonly recording: string;
  /** The id that it is asked for by: one of the built-in catalogue, or `test/…` where that lacks the model. */
  readonly model: string;
  /** UTF-8 bytes. */
  readonly content: number;
  readonly reasoning: number;
  /** Name and input of each. */
  readonly calls: readonly string[];
  readonly finish: string;
  /** Tokens by kind; null where the provider reported none, so that the gateway counts. */
  readonly prompt: number | null;
  readonly cached: number | null;
  readonly completion: number | null;
  readonly thinking: number | null;
  /** Without a fee. */
  readonly usd: string | null;
}

interface StatedPrices {
  /** The type of the provider, for models that the built-in catalogue lacks. */
  readonly provider?: string;
  readonly input: number;
  readonly cached: number;
  readonly output: number;
}

interface RecordingsTable {
  readonly usd_per_million_tokens: Readonly<Record<string, StatedPrices>>;
  readonly rows: readonly Row[];
}

export const TABLE: RecordingsTable = await Bun.file(
  join(import.meta.dir, "recordings-table.json"),
).json();

const HEAD = [
  "recording",
  "model",
  "content",
  "reasoning",
  "tool calls",
  "finish",
  "prompt",
  "cached",
  "completion",
  "thinking",
  "USD",
];

/** In Markdown. */
export function tableText(): string {
  const lines = TABLE.rows.map((row) => [
    row.recording.replace(/^.*?\/(.*?)(?:\.chunks\.txt)?$/, "$1"),
    row.model,
    row.content,
    row.reasoning,
    row.calls.map((call) => `\`${call}\``).join(", "),
    row.finish,
    row.prompt ?? "counted",
    row.cached ?? "",
    row.completion ?? "counted",
    row.thinking ?? "",
    row.usd ?? "estimated",
  ]);
  return [HEAD, HEAD.map(() => "---"), ...lines]
    .map((cells) => `| ${cells.join(" | ")} |\n`)
    .join("");
}

if (import.meta.main) process.stdout.write(tableText());
