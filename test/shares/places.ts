import { BodyBudget } from "../../src/http/body-budget.ts";
import { createReadSemaphore, LoadGate } from "../../src/http/call-bounds.ts";
import { createModerationSemaphore } from "../../src/inference/call/guard/model-moderation.ts";
import { CallSlots } from "../../src/inference/call/routing/call-slots.ts";
import { createLongReadSemaphore } from "../../src/inference/endpoints/responses/response-store.ts";
import { createClaimSemaphore } from "../../src/inference/tools/code-interpreter/python-pool.ts";
import { createExchangeSemaphore } from "../../src/inference/tools/mcp/mcp-session.ts";
import { createPageSemaphores } from "../../src/inference/tools/web-search/page-reader.ts";
import { createCheckSemaphore, createLineSemaphore } from "../../src/jobs/batches/batch-owner.ts";
import { createStepSemaphores } from "../../src/jobs/fine-tuning/job-owner.ts";
import { createReadingSemaphore } from "../../src/jobs/vector-stores/indexing.ts";
import { createSearchSemaphore } from "../../src/jobs/vector-stores/vector-stores.ts";
import { VirtualClock } from "../../src/lib/clock.ts";
import { GatewayError } from "../../src/lib/errors.ts";
import { type FairSemaphore, SharedRoom } from "../../src/lib/fair-share.ts";
import { createDocumentSemaphore } from "../../src/main/compose/vector-stores.ts";
import { createLoadSemaphore } from "../../src/main/compose/webhooks.ts";
import { MemorySlots } from "../../src/platform/cluster/parallel-slots.ts";
import { CallAbort } from "../../src/providers/transport/call-abort.ts";
import { SendSlots } from "../../src/webhooks/send-slots.ts";

type End = () => void;

/** A shared place, as its users see it: `begin` resolves with what ends the work, or undefined if it is rejected. */
export interface Place {
  readonly name: string;
  /** Nobody waits for it: what finds no room is rejected. */
  readonly isRoom?: true;
  create(): { begin(owner: string): Promise<End | undefined> };
}

function semaphore(name: string, create: () => FairSemaphore): Place {
  return {
    name,
    create() {
      const made = create();
      return { begin: (owner) => made.acquire(owner).catch(onlyOverloaded) };
    },
  };
}

function onlyOverloaded(error: unknown): undefined {
  const codes: readonly string[] = ["overloaded", "moderation_unavailable"];
  if (error instanceof GatewayError && codes.includes(error.code)) return undefined;
  throw error;
}

function room(name: string, create: () => (owner: string) => End): Place {
  return {
    name,
    isRoom: true,
    create() {
      const take = create();
      return {
        begin: async (owner) => {
          try {
            return take(owner);
          } catch (error) {
            return onlyOverloaded(error);
          }
        },
      };
    },
  };
}

const BODY_BYTES = 65_536;
const PARALLEL_CALLS = 16;
const CALL_WAIT_MS = 1_000;

/** Every place of the gateway that organizations share. */
export const PLACES: readonly Place[] = [
  room("calls of models", () => {
    const gate = new LoadGate({ lagMs: () => 0 });
    return (owner) => {
      gate.begin(owner);
      return () => gate.end(owner);
    };
  }),
  room("bodies that arrive", () => {
    const budget = new BodyBudget(new VirtualClock());
    return (owner) => {
      budget.take(owner, BODY_BYTES);
      return () => budget.give(owner, BODY_BYTES);
    };
  }),
  room("a bounded amount without a bound of one", () => {
    const shared = new SharedRoom(64);
    return (owner) => {
      if (!shared.tryTake(owner)) throw new GatewayError("overloaded", "Full.");
      return () => shared.free(owner);
    };
  }),
  {
    name: "parallel calls of a provider",
    create() {
      const slots = new CallSlots({
        slots: new MemorySlots(),
        clock: new VirtualClock(),
        maxWaitMs: CALL_WAIT_MS,
      });
      const limits = [{ id: "provider", max: PARALLEL_CALLS }];
      return {
        async begin(owner) {
          const isTaken =
            (await slots.take(owner, limits)) ||
            (await slots.wait(owner, [limits], new CallAbort(), CALL_WAIT_MS)) !== undefined;
          return isTaken ? () => slots.release(owner, limits) : undefined;
        },
      };
    },
  },
  {
    name: "attempts of webhooks",
    create() {
      const slots = new SendSlots(64, new VirtualClock());
      return {
        async begin(owner) {
          const slot = await slots.take({ organizationId: owner, host: `${owner}.example` });
          return () => slot.release();
        },
      };
    },
  },
  semaphore("administrative reads", () => createReadSemaphore(10)),
  semaphore("interpreters of Python", () => createClaimSemaphore({ maxProcesses: 4 })),
  semaphore("many interpreters of Python", () => createClaimSemaphore({ maxProcesses: 64 })),
  semaphore("pages that are loaded", () => createPageSemaphores().pages),
  semaphore("pages that are extracted", () => createPageSemaphores().extractions),
  semaphore("exchanges with MCP servers", createExchangeSemaphore),
  semaphore("documents of chats", createDocumentSemaphore),
  semaphore("files that are indexed", createReadingSemaphore),
  semaphore("searches of vector stores", createSearchSemaphore),
  semaphore("lines of batches", createLineSemaphore),
  semaphore("batches that are checked", createCheckSemaphore),
  semaphore("training files that are checked", () => createStepSemaphores().heavy),
  semaphore("steps of fine-tuning jobs", () => createStepSemaphores().light),
  semaphore("long responses that are read", createLongReadSemaphore),
  semaphore("moderation models", createModerationSemaphore),
  semaphore("webhooks that are loaded", createLoadSemaphore),
];
