import { existsSync, readFileSync } from "node:fs";
import { Parser } from "htmlparser2";

/** What became of a run's test files, from Bun's JUnit report. */
export interface TestReport {
  readonly files: ReadonlyMap<string, Counts>;
  /** Files with a failed test, and files that did not load, in the order of the run. */
  readonly failedFiles: readonly string[];
}

/** Numbers of tests. A file that does not load counts as one failed test. */
export interface Counts {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

/**
 * Reads the report at `path` of a run of `files` (paths from the root of the project). A file that the report
 * lacks did not load: it counts as failed, as all files do if the run wrote no report.
 */
export function readReport(path: string, files: readonly string[]): TestReport {
  const counts = new Map<string, Counts>();
  const parser = new Parser(
    {
      onopentag(name, { file, tests, failures, skipped, name: suite }) {
        // Suites of `describe` are inside their file's suite, which is named after the file.
        if (name !== "testsuite" || file === undefined || suite !== file) return;
        const [failed, left] = [Number(failures), Number(skipped)];
        counts.set(file, { passed: Number(tests) - failed - left, failed, skipped: left });
      },
    },
    { xmlMode: true },
  );
  if (existsSync(path)) parser.write(readFileSync(path, "utf8"));
  parser.end();
  for (const file of files) {
    if (!counts.has(file)) counts.set(file, { passed: 0, failed: 1, skipped: 0 });
  }
  return { files: counts, failedFiles: files.filter((file) => counts.get(file)!.failed > 0) };
}

/** Adds up the files of the reports. If several contain a file, the last one counts. */
export function totalOf(reports: readonly TestReport[]): Counts {
  const files = new Map(reports.flatMap((report) => [...report.files]));
  const sum = { passed: 0, failed: 0, skipped: 0 };
  for (const { passed, failed, skipped } of files.values()) {
    sum.passed += passed;
    sum.failed += failed;
    sum.skipped += skipped;
  }
  return sum;
}

/** Returns the last line of a run, which continuous integration reads. */
export function totalLine({ passed, failed, skipped }: Counts): string {
  return `${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ""}`;
}
