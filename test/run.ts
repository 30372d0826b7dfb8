import "./support/preload.ts";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { Glob } from "bun";
import measuredSeconds from "./durations.json";
import { bundlePrograms } from "./support/programs.ts";
import { NO_REDIS_WARNING } from "./support/redis.ts";
import { startTestServices } from "./support/services.ts";
import { readReport, type TestReport, totalLine, totalOf } from "./support/test-report.ts";
import { belongsTo, LONG, MEASURING, THOROUGH_SETTINGS } from "./tiers.ts";

/*
 * Runs a tier of the suite (--quick, --all, --thorough; see tiers.ts), or the files and options of
 * `bun test` that the arguments name. Files run in parallel: the LONG ones each in a process of its own, then
 * the others in processes that they share. Those that measure run one by one afterwards.
 *
 * Shared machines pause, so a tier gives failed tests another chance: a failed test runs a second time
 * immediately ("(attempt 2)" in its line), and files that still fail run once more at the end, one by one. The
 * last line of a tier is its total.
 *
 * --durations prints how long the slowest files took, and writes durations.json if all files ran.
 * TEST_DATABASE_URL and TEST_REDIS_URL name servers to use in place of ones started for the run.
 */

/** Tests with real processes, killed and restarted many times, take long. */
const TEST_TIMEOUT_MS = 60_000;
const THOROUGH_TIMEOUT_MS = 3_600_000;
const INTERRUPTED = 130;
const SLOWEST_FILES = 40;
/** If more files fail, the cause is not a pause of the machine. */
const MAX_REPEATED_FILES = 10;
/** Most tests wait more than they compute: for processes, leases and outages. */
const PROCESSES_PER_CORE = 2.5;
/** durations.json has the files that take at least this time. The others are expected to take half of it. */
const MIN_STORED_MS = 3_000;
const DURATIONS_PATH = join(import.meta.dir, "durations.json");

interface Phase {
  readonly args: readonly string[];
  /** Files of a tier. Undefined if the arguments name what to run. */
  readonly files?: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
}

/**
 * Processes of tests end before what the last of JavaScriptCore's compilers makes of their code has paid for
 * the time that it takes: a tenth of a run's. Files that measure do without this, as servers do.
 */
const SHORT_LIVED = { BUN_JSC_useFTLJIT: "0" } as const;

const TIERS = ["--quick", "--all", "--thorough"];

const storedSeconds: Readonly<Record<string, number>> = measuredSeconds;
const isSlow = (file: string) => file in storedSeconds;

/** Named files run as they are, whatever the tier. */
const isWholeTier = ([tier = "", ...rest]: readonly string[]) =>
  TIERS.includes(tier) && rest.length === 0;

async function phasesOf(argv: readonly string[]): Promise<Phase[]> {
  const [tier = ""] = argv;
  if (!isWholeTier(argv)) {
    const named = TIERS.includes(tier) ? argv.slice(1) : argv;
    return [{ args: [timeout(TEST_TIMEOUT_MS), ...named] }];
  }
  const files = await testFiles();
  const isLong = (file: string) => belongsTo(file, LONG);
  const isMeasuring = (file: string) => belongsTo(file, MEASURING);
  if (tier === "--thorough") {
    const args = [timeout(THOROUGH_TIMEOUT_MS)];
    return [{ args, files: files.filter(isLong), environment: THOROUGH_SETTINGS }];
  }
  const parallel = `--parallel=${Math.ceil(cpus().length * PROCESSES_PER_CORE)}`;
  const isOther = (file: string) => !isLong(file) && (tier === "--all" || !isSlow(file));
  const others = files.filter(isOther);
  const inParallel = others.filter((file) => !isMeasuring(file));
  const measuring = (tier === "--all" ? files : others).filter(isMeasuring);
  const long = files.filter((file) => isLong(file) && !isMeasuring(file));
  const environment = SHORT_LIVED;
  return [
    ...(tier === "--all"
      ? [{ args: [timeout(TEST_TIMEOUT_MS), parallel], files: long, environment }]
      : []),
    // Files that share a process load the modules once: a third of the run's time.
    { args: [timeout(TEST_TIMEOUT_MS), parallel, "--no-isolate"], files: inParallel, environment },
    { args: [timeout(TEST_TIMEOUT_MS)], files: measuring },
  ];
}

async function testFiles(): Promise<string[]> {
  const files: string[] = [];
  for await (const file of new Glob("test/**/*.test.ts").scan(ROOT)) files.push(file);
  return files.sort();
}

const ROOT = join(import.meta.dir, "..");
const timeout = (ms: number) => `--timeout=${ms}`;
/** With a leading "./" an argument names a file and is no pattern. */
const asPath = (file: string) => `./${file}`;

async function main(): Promise<number> {
  let interrupted: NodeJS.Signals | undefined;
  let tests: Bun.Subprocess | undefined;
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.on(signal, () => {
      interrupted = signal;
      tests?.kill(signal);
    });
  }
  const argv = process.argv.slice(2);
  const wanted = argv.filter((arg) => arg !== "--durations");
  const phases = await phasesOf(wanted);
  const durations = new Durations(phases);
  const programs = isWholeTier(wanted) ? await bundlePrograms() : undefined;
  const running = await startTestServices();
  const reportPath = join(durations.folder, "report.xml");

  /** Runs the phase. Returns Bun's exit code, and for files of a tier what became of them. */
  async function run(phase: Phase, options: readonly string[]) {
    const { args, files = [], environment } = phase;
    const reporter = ["--reporter=junit", `--reporter-outfile=${reportPath}`];
    const command = [process.execPath, "test", ...(files.length > 0 ? reporter : []), ...options];
    tests = Bun.spawn([...command, ...args, ...files.map(asPath)], {
      cwd: ROOT,
      // Bun's default is the environment at our own start, without what changed since.
      env: { ...process.env, ...environment },
      stdio: ["inherit", "inherit", "inherit"],
    });
    await tests.exited;
    const report = files.length > 0 ? readReport(reportPath, files) : undefined;
    rmSync(reportPath, { force: true });
    return { exitCode: tests.exitCode ?? 1, report };
  }

  try {
    if (running.services.redisUrl === undefined) {
      console.error(`\n${NO_REDIS_WARNING}\n`);
      if (process.env.CI === "true") return 1;
    }
    const reports: TestReport[] = [];
    for (const phase of phases) {
      const options = [...(phase.files === undefined ? [] : ["--retry=1"]), ...durations.args];
      const { exitCode, report } = await run(phase, options);
      if (interrupted !== undefined) return INTERRUPTED;
      if (report === undefined) return exitCode;
      // An error outside the tests, which a repetition of files would hide.
      if (exitCode !== 0 && report.failedFiles.length === 0) return exitCode;
      reports.push(report);
    }
    if (argv.includes("--durations")) {
      durations.print();
      if (wanted[0] === "--all") durations.store();
    }
    const failed = reports.flatMap(({ failedFiles }) => failedFiles);
    if (failed.length > 0 && failed.length <= MAX_REPEATED_FILES) {
      console.log(`\n== files that failed, once more, one by one:\n${failed.join("\n")}\n`);
      const timeoutMs = wanted[0] === "--thorough" ? THOROUGH_TIMEOUT_MS : TEST_TIMEOUT_MS;
      const { report } = await run({ args: [timeout(timeoutMs)], files: failed }, []);
      if (interrupted !== undefined) return INTERRUPTED;
      reports.push(report!);
    }
    const total = totalOf(reports);
    if (wanted[0] === "--quick") {
      const ran = reports.flatMap(({ files }) => [...files.keys()]);
      const leftOut = (await testFiles()).length - new Set(ran).size;
      console.log(`\n${leftOut} slow files left out: bun run test:all runs them.`);
    }
    console.log(`\n${totalLine(total)}`);
    return total.failed === 0 ? 0 : 1;
  } finally {
    durations.remove();
    programs?.remove();
    await running.stop();
  }
}

/**
 * What Bun reads and writes about the time that files take, with their imports and hooks. Bun starts the files
 * first that take longest, so that none of them runs alone at the end.
 */
class Durations {
  readonly folder = mkdtempSync(join(tmpdir(), "gateway-durations-"));
  readonly #path = join(this.folder, "durations.json");
  readonly args = [`--timings=${this.#path}`, "--update-timings"];

  constructor(phases: readonly Phase[]) {
    const named = phases.flatMap(({ files = [] }) => files);
    const files = named.map((file): [string, number] => {
      const seconds = storedSeconds[file];
      return [file, seconds === undefined ? MIN_STORED_MS / 2 : seconds * 1_000];
    });
    writeFileSync(this.#path, JSON.stringify({ version: 1, files: Object.fromEntries(files) }));
  }

  print(): void {
    const slowest = Object.entries(this.#read()).toSorted(([, a], [, b]) => b - a);
    const sumMs = slowest.reduce((sum, [, ms]) => sum + ms, 0);
    const row = (ms: number, name: string) => `${(ms / 1_000).toFixed(1).padStart(8)} s  ${name}`;
    console.log(`\n${row(sumMs, `${slowest.length} files together, the slowest of them:`)}`);
    for (const [file, ms] of slowest.slice(0, SLOWEST_FILES)) console.log(row(ms, file));
  }

  /** Stores the times of the slow files for later runs. */
  store(): void {
    const slow = Object.entries(this.#read()).filter(([, ms]) => ms >= MIN_STORED_MS);
    const sorted = slow.toSorted(([a], [b]) => (a < b ? -1 : 1));
    const seconds = Object.fromEntries(sorted.map(([file, ms]) => [file, Math.round(ms / 1_000)]));
    writeFileSync(DURATIONS_PATH, `${JSON.stringify(seconds, null, 2)}\n`);
  }

  #read(): Record<string, number> {
    return JSON.parse(readFileSync(this.#path, "utf8")).files;
  }

  remove(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}

process.exit(
  await main().catch((error: Error) => {
    console.error(error.message);
    return 1;
  }),
);
