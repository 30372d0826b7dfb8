import { KINDS } from "../crash/kinds.ts";
import { receive, type Sent, sentOf } from "../crash/load.ts";
import type { Instance } from "./cluster.ts";

/** One in ten is a long stream, which a restart has to wait for. */
const ROLLING_KINDS = ["plain", "short", "plain", "slow-plain", "insistent"];
const LONG_KIND = "crawling";

export const kindOf = (name: string) => KINDS.find((kind) => kind.name === name)!;

/** Sends one request, and notes what came of it. */
export async function sendKind(instance: Instance, kind: string, key: string): Promise<Sent> {
  const sent = sentOf(crypto.randomUUID(), kindOf(kind));
  sent.startedAtMs = performance.now();
  await receive(sent, instance.baseUrl, key).catch(() => {});
  sent.endedAtMs = performance.now();
  return sent;
}

export interface RollingLoad {
  /** Whether the instance in this place answers that it is ready. */
  isReady(place: number): boolean;
  /** Resolves once no request is under way. */
  end(): Promise<readonly Sent[]>;
}

/**
 * Clients behind a load balancer that asks each instance every `lookMs` whether it is ready. They come at a rate of
 * their own, however slow the answers are, once an instance is ready. Instances may be replaced in the array.
 */
export function startRollingLoad(
  instances: readonly Instance[],
  options: { readonly ratePerSecond: number; readonly lookMs: number; readonly key: string },
): RollingLoad {
  const ready = new Set<number>();
  let isOver = false;
  const looks = instances.map(async (_, n) => {
    while (!isOver) {
      const isReady = await fetch(`${instances[n]!.baseUrl}/readyz`, { keepalive: false }).then(
        ({ ok }) => ok,
        () => false,
      );
      if (isReady) ready.add(n);
      else ready.delete(n);
      await Bun.sleep(options.lookMs);
    }
  });
  const all: Sent[] = [];
  const clients: Promise<void>[] = [];
  const arrivals = (async () => {
    while (ready.size < instances.length && !isOver) await Bun.sleep(2);
    const beganMs = performance.now();
    while (!isOver) {
      const due = Math.floor(((performance.now() - beganMs) * options.ratePerSecond) / 1_000);
      while (clients.length < due) {
        const turn = clients.length;
        const choice = [...ready];
        const kind = turn % 10 === 9 ? LONG_KIND : ROLLING_KINDS[turn % ROLLING_KINDS.length]!;
        const request = sendKind(instances[choice[turn % choice.length]!]!, kind, options.key);
        clients.push(request.then((sent) => void all.push(sent)));
      }
      await Bun.sleep(2);
    }
  })();
  return {
    isReady: (place) => ready.has(place),
    async end() {
      isOver = true;
      await Promise.all([arrivals, ...looks]);
      await Promise.all(clients);
      return all;
    },
  };
}
