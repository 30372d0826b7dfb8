import { describe, expect, test } from "bun:test";
import { decideFileTrigger, type FileTrigger } from "../../src/jobs/files/job-files.ts";
import type { FileStatus } from "../../src/lib/file-record.ts";

/** What becomes of each status by each trigger: another status, the same, or undefined where it is refused. */
const TABLE: Record<FileStatus, Record<FileTrigger, FileStatus | undefined>> = {
  uploaded: { use: undefined, succeed: "processed", fail: "error" },
  processed: { use: "processed", succeed: "processed", fail: "error" },
  error: { use: undefined, succeed: undefined, fail: "error" },
};

describe.each(Object.entries(TABLE) as [FileStatus, (typeof TABLE)["error"]][])(
  "a file that is %s",
  (status, byTrigger) => {
    test.each(Object.entries(byTrigger) as [FileTrigger, FileStatus | undefined][])(
      "%s makes it %s",
      (trigger, expected) => {
        const decision = decideFileTrigger(status, trigger);
        const after =
          decision.kind === "become"
            ? decision.status
            : decision.kind === "stay"
              ? status
              : undefined;
        expect(after).toBe(expected as FileStatus);
        // A change is one: the same status is no transition.
        if (decision.kind === "become") expect(decision.status).not.toBe(status);
      },
    );
  },
);
