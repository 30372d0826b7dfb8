import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { FineTuningProvider, TrainingRequest } from "../../src/providers/fine-tuning.ts";
import { ProviderFailure } from "../../src/providers/interface.ts";
import { lessonsText } from "../support/tuning-gateway.ts";

export interface ProviderUnderTest {
  readonly provider: FineTuningProvider;
  /** Lets a training come to its end. */
  finish(): Promise<void>;
  stop(): Promise<void>;
}

const signal = new AbortController().signal;
let names = 0;
const newName = () => `job_${names++}_${Date.now()}`;

export function requestOf(trainingFileId: string, tag: string): TrainingRequest {
  return {
    model: "chat-2026-01-01",
    trainingFileId,
    validationFileId: undefined,
    tag,
    suffix: "suite",
    seed: 7,
    hyperparameters: { n_epochs: 2, batch_size: "auto", learning_rate_multiplier: "auto" },
  };
}

export function textStream(text: string, pieceBytes = 16): ReadableStream<Uint8Array> {
  const bytes = new TextEncoder().encode(text);
  let at = 0;
  return new ReadableStream({
    pull(controller) {
      if (at >= bytes.length) return controller.close();
      controller.enqueue(bytes.slice(at, at + pieceBytes));
      at += pieceBytes;
    },
  });
}

/** What every provider that trains promises, whatever is behind it. */
export function describeFineTuningProvider(
  name: string,
  start: () => Promise<ProviderUnderTest>,
): void {
  describe(`${name} as a provider that trains`, () => {
    let under: ProviderUnderTest;
    let provider: FineTuningProvider;
    beforeAll(async () => {
      under = await start();
      provider = under.provider;
    });
    afterAll(() => under.stop());

    const uploadFile = (file: string) =>
      provider.uploadFile(
        { name: file, owner: "org_1", content: textStream(lessonsText()) },
        signal,
      );
    const statusOf = async (call: Promise<unknown>) => {
      const error = await call.catch((thrown: unknown) => thrown);
      expect(error).toBeInstanceOf(ProviderFailure);
      return (error as ProviderFailure).status;
    };

    test("finds a file by its name until it is deleted, and deletes it twice without harm", async () => {
      const file = `${newName()}.jsonl`;
      expect(await provider.findFile(file, signal)).toBeUndefined();
      const id = await uploadFile(file);
      expect(await provider.findFile(file, signal)).toBe(id);
      await provider.deleteFile(id, signal);
      expect(await provider.findFile(file, signal)).toBeUndefined();
      await provider.deleteFile(id, signal);
    });

    test("finds a job by its tag, and by its id, from creation to the end, with a model then", async () => {
      const tag = newName();
      expect(await provider.findJobs(tag, signal)).toEqual([]);
      const job = await provider.createJob(
        requestOf(await uploadFile(`${tag}.jsonl`), tag),
        signal,
      );
      expect(["waiting", "running"]).toContain(job.status);
      expect((await provider.findJobs(tag, signal)).map(({ id }) => id)).toEqual([job.id]);
      expect(await provider.findJobs(`${tag}0`, signal)).toEqual([]);
      await under.finish();
      let seen = await provider.readJob(job.id, signal);
      for (let reads = 0; reads < 5 && seen.status !== "succeeded"; reads++) {
        seen = await provider.readJob(job.id, signal);
      }
      expect(seen).toMatchObject({ id: job.id, status: "succeeded", failure: undefined });
      expect(seen.tunedModel).toBeString();
      expect(seen.trainedTokens).toBeGreaterThan(0);
      const events = await provider.readEvents(job.id, signal);
      expect(events.some(({ type }) => type === "metrics")).toBe(true);
      const times = events.map(({ createdAt }) => createdAt);
      expect(times).toEqual([...times].sort((one, other) => one - other));
      expect(new Set(events.map(({ id }) => id)).size).toBe(events.length);
      await provider.deleteModel(seen.tunedModel!, signal);
      await provider.deleteModel(seen.tunedModel!, signal);
    });

    test("cancels a job, once or twice, and one that is not there without harm", async () => {
      const tag = newName();
      const job = await provider.createJob(
        requestOf(await uploadFile(`${tag}.jsonl`), tag),
        signal,
      );
      await provider.cancelJob(job.id, signal);
      await provider.cancelJob(job.id, signal);
      expect((await provider.readJob(job.id, signal)).status).toBe("cancelled");
      await provider.cancelJob("job-that-is-none", signal);
    });

    test("says 404 for a job that is not there", async () => {
      expect(await statusOf(provider.readJob("job-that-is-none", signal))).toBe(404);
    });

    test("refuses an order for a file that is not there", async () => {
      const order = provider.createJob(requestOf("file-that-is-none", newName()), signal);
      expect(await statusOf(order)).toBe(400);
    });

    test("counts tokens no further than is needed, however hostile the text", async () => {
      expect(await provider.countTokens("", 10)).toBe(0);
      expect(await provider.countTokens("one two three", 1_000)).toBeWithin(3, 10);
      for (const text of [
        "a".repeat(300_000),
        "\ud800".repeat(50_000),
        "<|endoftext|> ".repeat(20_000),
      ]) {
        expect(await provider.countTokens(text, 1_000)).toBeGreaterThan(1_000);
      }
    });
  });
}
