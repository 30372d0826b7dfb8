import { mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { table } from "./table.ts";

const SHOWN_FUNCTIONS = 40;
const EXTENSION = ".cpuprofile";
/** While there is work; a longer gap between two samples was idle. */
const SAMPLE_EVERY_MICROS = 250;
const LONGEST_SAMPLE_MICROS = 2 * SAMPLE_EVERY_MICROS;

/** As Chrome's DevTools protocol has it (Profiler.Profile); times in microseconds. */
interface CpuProfile {
  readonly nodes: readonly {
    readonly id: number;
    readonly callFrame: {
      readonly functionName: string;
      readonly url: string;
      readonly lineNumber: number;
    };
  }[];
  readonly samples: readonly number[];
  readonly timeDeltas: readonly number[];
}

/** Arguments for Bun that have it write a profile into a folder when it ends. */
export function profileArguments(folder: string): string[] {
  return ["--cpu-prof", `--cpu-prof-dir=${folder}`, `--cpu-prof-interval=${SAMPLE_EVERY_MICROS}`];
}

/** The profiles that lie in a folder, made where it is missing. */
export function listProfiles(folder: string): Set<string> {
  mkdirSync(folder, { recursive: true });
  return new Set(readdirSync(folder).filter((name) => name.endsWith(EXTENSION)));
}

/** Where the time of the gateway's main thread went, one table for each profile that is new. */
export function summariseProfiles(folder: string, old: ReadonlySet<string>): string {
  return [...listProfiles(folder)]
    .filter((name) => !old.has(name))
    .map((name) => summarise(join(folder, name)))
    .join("\n\n");
}

function summarise(path: string): string {
  const { nodes, samples, timeDeltas } = JSON.parse(readFileSync(path, "utf8")) as CpuProfile;
  const places = new Map(nodes.map(({ id, callFrame }) => [id, placeOf(callFrame)]));
  const selfMicros = new Map<string, number>();
  let totalMicros = 0;
  for (const [index, id] of samples.entries()) {
    const place = places.get(id) ?? "unknown";
    const micros = Math.min(timeDeltas[index] ?? 0, LONGEST_SAMPLE_MICROS);
    selfMicros.set(place, (selfMicros.get(place) ?? 0) + micros);
    totalMicros += micros;
  }
  const lines = [...selfMicros]
    .sort(([, a], [, b]) => b - a)
    .slice(0, SHOWN_FUNCTIONS)
    .map(([place, micros]) => [
      `${((micros / totalMicros) * 100).toFixed(1)} %`,
      (micros / 1_000).toFixed(0),
      place,
    ]);
  const rows = table(["self", "ms", `function (${path})`], lines, ["right", "right", "left"]);
  return `${rows}\nBusy for ${(totalMicros / 1e6).toFixed(1)} s of the main thread; other threads are not in it.`;
}

function placeOf({ functionName, url, lineNumber }: CpuProfile["nodes"][0]["callFrame"]): string {
  const file = url.replace(/^.*\/(?=(src|db|actors|node_modules)\/)/, "");
  return `${functionName || "(anonymous)"}${file === "" ? "" : `  ${file}:${lineNumber + 1}`}`;
}
