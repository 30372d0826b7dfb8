import { Cleanups } from "./cleanups.ts";
import { type BenchOptions, readOptions } from "./options.ts";
import { listProfiles, summariseProfiles } from "./profile.ts";
import { report } from "./report.ts";
import { runBench } from "./run-bench.ts";
import { judge } from "./targets.ts";

/*
 * Drives the gateway and a bare proxy in turn, and reports what the gateway adds: see --help. Ends with 1
 * where an answer or the ledger was wrong; a missed target is reported, and is no failure of the run.
 */

const INTERRUPTED = 130;

function readArguments(): BenchOptions {
  try {
    return readOptions(process.argv.slice(2), process.env);
  } catch (error) {
    process.stderr.write(`${(error as Error).message}\n`);
    return process.exit(2);
  }
}

async function main(): Promise<number> {
  const options = readArguments();
  const { profileDir } = options;
  const oldProfiles = profileDir === undefined ? undefined : listProfiles(profileDir);
  const cleanups = new Cleanups();
  let isInterrupted = false;
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.on(signal, () => {
      isInterrupted = true;
      // What is under way fails when the processes it speaks to go.
      process.on("uncaughtException", () => {});
      void cleanups.run().then(() => process.exit(INTERRUPTED));
    });
  }
  try {
    const say = (progress: string) => process.stderr.write(`… ${progress}\n`);
    const results = await runBench(options, cleanups, say);
    process.stdout.write(
      options.isJson
        ? `${JSON.stringify({ ...results, targets: judge(results) }, null, 2)}\n`
        : `\n${report(results)}`,
    );
    if (profileDir !== undefined && oldProfiles !== undefined) {
      // A profile is written when its process ends.
      await cleanups.run();
      process.stderr.write(`\n${summariseProfiles(profileDir, oldProfiles)}\n`);
    }
    const isRight = results.wrongAnswers === 0 && results.ledger.isExact;
    return isRight && (results.clustered?.findings.length ?? 0) === 0 ? 0 : 1;
  } catch (error) {
    if (!isInterrupted) process.stderr.write(`${error instanceof Error ? error.stack : error}\n`);
    return isInterrupted ? INTERRUPTED : 1;
  } finally {
    await cleanups.run();
  }
}

process.exit(await main());
