import { connectDatabase, HEARTBEAT_SETTINGS, INSTANCE_SETTINGS } from "../../../db/client.ts";
import { type RenewableDatabase, renewableDatabase } from "../../../db/connection-watch.ts";
import { beat } from "../../../db/queries/instances.ts";
import { BEAT, type HeartbeatThreadStart, TICK } from "./heartbeat-thread.ts";

/** Well below a third of the lease: two may be lost. */
const INTERVAL_MS = 750;
/** A heartbeat that takes longer was swallowed on its way. */
const MAX_BEAT_MS = 1_200;
const NANO_PER_MS = 1_000_000n;

const scope = globalThis as unknown as {
  onmessage: ((event: MessageEvent<HeartbeatThreadStart>) => void) | null;
  postMessage(message: string): void;
};

scope.onmessage = ({ data }) => void run(data);

async function run(start: HeartbeatThreadStart): Promise<never> {
  const moments = new BigInt64Array(start.shared);
  // By the process's clock, or earlier by what the message took: no heartbeat counts as younger than it is.
  const originNano = start.sentNano - process.hrtime.bigint();
  const instance = { id: start.instanceId, epoch: start.epoch };
  const database = connect(start);
  for (;;) {
    const beganNano = originNano + process.hrtime.bigint();
    const stalledMs = Number((beganNano - Atomics.load(moments, TICK)) / NANO_PER_MS);
    if (stalledMs <= start.maxStallMs) {
      const outcome = await Promise.race([
        beat(database.sql, instance).catch(() => "failed" as const),
        Bun.sleep(MAX_BEAT_MS).then(() => "late" as const),
      ]);
      // An instance that was declared dead learns it from the heartbeats of its event loop, and stops.
      if (outcome === true) Atomics.store(moments, BEAT, beganNano);
      if (outcome === "late") database.renew(MAX_BEAT_MS);
    }
    await Bun.sleep(INTERVAL_MS);
  }
}

function connect({ url, instanceId }: HeartbeatThreadStart): RenewableDatabase {
  return renewableDatabase((events) =>
    connectDatabase(
      { url },
      {
        poolSize: 1,
        applicationName: `gateway-beat-${instanceId}`,
        settings: { ...INSTANCE_SETTINGS, ...HEARTBEAT_SETTINGS },
        events,
      },
    ),
  );
}
