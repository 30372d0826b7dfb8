import { connectDatabase, HEARTBEAT_SETTINGS, INSTANCE_SETTINGS } from "../../../db/client.ts";
import { type RenewableDatabase, renewableDatabase } from "../../../db/connection-watch.ts";
import { beat } from "../../../db/queries/instances.ts";
import { BEAT, type HeartbeatThreadStart, TICK } from "./heartbeat-thread.ts";

/** Milliseconds between heartbeats. Well below a third of the lease, so that two can be lost. */
const INTERVAL_MS = 750;
/** Milliseconds after which a heartbeat counts as lost in the network. */
const MAX_BEAT_MS = 1_200;
const NANO_PER_MS = 1_000_000n;

const scope = globalThis as unknown as {
  onmessage: ((event: MessageEvent<HeartbeatThreadStart>) => void) | null;
  postMessage(message: string): void;
};

scope.onmessage = ({ data }) => void run(data);

async function run(start: HeartbeatThreadStart): Promise<never> {
  const moments = new BigInt64Array(start.shared);
  // The time of the process's clock, minus the time that the message took. A heartbeat therefore
  // never counts as younger than it is.
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
      // If this instance was declared dead, the heartbeats of its event loop detect it and stop the
      // instance.
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
