import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { ROWS } from "./rows.ts";

const SECTIONS = [...ROWS.map(({ name }) => name), "keys", "aborts", "start", "clustered"] as const;
export type Section = (typeof SECTIONS)[number];

export interface BenchOptions {
  readonly sections: ReadonlySet<Section>;
  /** Of each comparison with the bare proxy. */
  readonly rounds: number;
  /** Of everything else. */
  readonly sideRounds: number;
  readonly measureMs: number;
  readonly warmupMs: number;
  readonly manyKeys: number;
  readonly abortedStreams: number;
  /** An existing server, on which a database is made and dropped; undefined: the embedded one. */
  readonly databaseUrl: string | undefined;
  /** Of the gateway, by the names of their variables. */
  readonly settings: Readonly<Record<string, string>>;
  /** Where the gateway's log goes; undefined: nowhere. */
  readonly logPath: string | undefined;
  /** Folder for a CPU profile of the gateway. */
  readonly profileDir: string | undefined;
  readonly isJson: boolean;
  readonly isQuick: boolean;
  /** Compares the gateway with Go's reverse proxy too. */
  readonly withGo: boolean;
}

const MOST_SIDE_ROUNDS = 3;

const USAGE = `bun run bench [options]

  --quick               shorter rounds and fewer of them, under a minute in all
  --only a,b            only these of ${SECTIONS.join(", ")}
  --rounds N            how often gateway and bare proxy are measured, in turn (5; quick 2)
  --seconds S           of each measurement, at least (1.5; quick 0.4)
  --database-url URL    a Postgres server to use in place of the embedded one (or TEST_DATABASE_URL)
  --go                  compares the gateway with Go's httputil.ReverseProxy too (needs go)
  --set NAME=VALUE      a setting of the gateway, to compare runs with and without it
  --log FILE            keeps the gateway's log
  --profile DIR         writes a CPU profile of the gateway, and prints where its time went
  --json                everything measured, as JSON, in place of the tables
`;

/** Throws with a message for the terminal where an argument is not understood. */
export function readOptions(
  argv: readonly string[],
  environment: Readonly<Record<string, string | undefined>>,
): BenchOptions {
  const { values } = parseArgs({
    args: [...argv],
    options: {
      quick: { type: "boolean", default: false },
      only: { type: "string", multiple: true },
      rounds: { type: "string" },
      seconds: { type: "string" },
      "database-url": { type: "string" },
      set: { type: "string", multiple: true, default: [] },
      log: { type: "string" },
      profile: { type: "string" },
      json: { type: "boolean", default: false },
      go: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) {
    process.stdout.write(USAGE);
    process.exit(0);
  }
  const isQuick = values.quick;
  const rounds = values.rounds === undefined ? (isQuick ? 2 : 5) : number(values.rounds);
  const seconds = values.seconds === undefined ? (isQuick ? 0.4 : 1.5) : number(values.seconds);
  return {
    sections: new Set(values.only === undefined ? SECTIONS : readSections(values.only)),
    rounds,
    sideRounds: Math.min(rounds, MOST_SIDE_ROUNDS),
    measureMs: seconds * 1_000,
    warmupMs: isQuick ? 200 : 300,
    manyKeys: isQuick ? 2_000 : 10_000,
    abortedStreams: isQuick ? 2_000 : 10_000,
    databaseUrl: values["database-url"] ?? (environment.TEST_DATABASE_URL || undefined),
    settings: Object.fromEntries(values.set.map(pair)),
    logPath: values.log,
    profileDir: values.profile === undefined ? undefined : resolve(values.profile),
    isJson: values.json,
    isQuick,
    withGo: values.go,
  };
}

function readSections(texts: readonly string[]): Section[] {
  return texts
    .flatMap((text) => text.split(","))
    .map((text) => {
      const section = SECTIONS.find((one) => one === text.trim());
      if (section === undefined) throw new Error(`--only takes ${SECTIONS.join(", ")}\n\n${USAGE}`);
      return section;
    });
}

function pair(text: string): [name: string, value: string] {
  const at = text.indexOf("=");
  if (at < 1) throw new Error(`--set takes NAME=VALUE\n\n${USAGE}`);
  return [text.slice(0, at), text.slice(at + 1)];
}

function number(text: string): number {
  const value = Number(text);
  if (!(value > 0)) throw new Error(`"${text}" is no number above 0\n\n${USAGE}`);
  return value;
}
