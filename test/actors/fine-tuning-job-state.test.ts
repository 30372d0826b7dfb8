import { describe, expect, test } from "bun:test";
import { afterTrigger, nextStep, type Trigger } from "../../actors/fine-tuning-job/state.ts";
import { JOB_STATUSES, type JobRecord, type JobStatus } from "../../src/lib/fine-tuning-job.ts";

const NOW_MS = 1_800_000_000_000;

function jobIn(status: JobStatus, rest: Partial<JobRecord> = {}): JobRecord {
  return {
    id: "ftjob_1",
    requestId: "req_1",
    organizationId: "org_1",
    keyId: "key_1",
    baseModel: "test/base",
    providerId: "trainer",
    providerBaseModel: "base",
    trainingFile: "file_1",
    validationFile: null,
    suffix: null,
    seed: 1,
    hyperparameters: { n_epochs: 1, batch_size: "auto", learning_rate_multiplier: "auto" },
    metadata: null,
    tokenFemto: 1n,
    feeBasisPoints: 400,
    holdNano: 1n,
    status,
    error: null,
    fineTunedModel: null,
    fileTokens: null,
    trainedTokens: null,
    providerFile: null,
    providerValidationFile: null,
    providerJob: null,
    createTries: 0,
    failedCalls: 3,
    uselessAnswers: 2,
    isCleanedUp: false,
    resultFile: null,
    eventCount: 1,
    version: 7n,
    createdAtMs: NOW_MS - 1_000,
    runningSinceMs: null,
    estimatedFinishMs: NOW_MS,
    finishedAtMs: null,
    ...rest,
  };
}

const TRIGGERS: { [Kind in Trigger["kind"]]: Trigger & { kind: Kind } } = {
  begin: { kind: "begin" },
  checked: { kind: "checked", fileTokens: 10 },
  uploaded: { kind: "uploaded", providerFile: "file-1", providerValidationFile: null },
  ordering: { kind: "ordering" },
  started: { kind: "started", providerJob: "job-1", estimatedFinishMs: null },
  observed: { kind: "observed", estimatedFinishMs: null },
  trouble: { kind: "trouble", isUseless: true },
  trained: { kind: "trained", fineTunedModel: "ft:x", trainedTokens: 20 },
  fail: { kind: "fail", error: { code: "c", message: "m", param: null } },
  cancel: { kind: "cancel" },
  cleaned: { kind: "cleaned", resultFile: null },
};

/** Where each trigger leads from each state; what is not listed is refused. */
const MOVES: { [Status in JobStatus]: Partial<Record<Trigger["kind"], JobStatus>> } = {
  queued: { begin: "validating_files", trouble: "queued", cancel: "cancelled" },
  validating_files: {
    checked: "validating_files",
    uploaded: "validating_files",
    ordering: "validating_files",
    started: "running",
    trouble: "validating_files",
    fail: "failed",
    cancel: "cancelled",
  },
  running: {
    observed: "running",
    trouble: "running",
    trained: "succeeded",
    fail: "failed",
    cancel: "cancelled",
  },
  succeeded: { trouble: "succeeded", cleaned: "succeeded" },
  failed: { trouble: "failed", cleaned: "failed" },
  cancelled: { trouble: "cancelled", cleaned: "cancelled" },
};

describe("a fine-tuning job", () => {
  for (const status of JOB_STATUSES) {
    for (const trigger of Object.values(TRIGGERS)) {
      const expected = MOVES[status][trigger.kind];
      test(`${status}, ${trigger.kind}: ${expected ?? "refused"}`, () => {
        const before = jobIn(status);
        const after = afterTrigger(before, trigger, NOW_MS);
        expect(after?.status).toBe(expected);
        if (after === undefined) return;
        expect(after.version).toBe(8n);
        const hasEnded = expected !== status && MOVES[expected!].cleaned !== undefined;
        expect(after.finishedAtMs).toBe(hasEnded ? NOW_MS : null);
      });
    }
  }

  test("counts failed calls, and forgets them once one has worked", () => {
    const troubled = afterTrigger(jobIn("running"), { kind: "trouble", isUseless: false }, NOW_MS)!;
    expect([troubled.failedCalls, troubled.uselessAnswers]).toEqual([4, 2]);
    const useless = afterTrigger(troubled, TRIGGERS.trouble, NOW_MS)!;
    expect([useless.failedCalls, useless.uselessAnswers]).toEqual([5, 3]);
    const calm = afterTrigger(useless, TRIGGERS.observed, NOW_MS)!;
    expect([calm.failedCalls, calm.uselessAnswers]).toEqual([0, 0]);
  });

  test("goes from step to step, and each mark leads to the next", () => {
    const steps: string[] = [];
    let job = jobIn("queued");
    for (const kind of [
      "begin",
      "checked",
      "uploaded",
      "ordering",
      "started",
      "trained",
      "cleaned",
    ]) {
      steps.push(nextStep(job));
      job = afterTrigger(job, TRIGGERS[kind as Trigger["kind"]], NOW_MS)!;
    }
    steps.push(nextStep(job));
    expect(steps).toEqual([
      "begin",
      "check",
      "upload",
      "order",
      "order",
      "follow",
      "clean-up",
      "rest",
    ]);
  });

  test("uploads until the validation file is there too", () => {
    const half = jobIn("validating_files", {
      fileTokens: 1,
      providerFile: "file-1",
      validationFile: "file_2",
    });
    expect(nextStep(half)).toBe("upload");
    expect(nextStep({ ...half, providerValidationFile: "file-2" })).toBe("order");
  });
});
