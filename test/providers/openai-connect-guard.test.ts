import { expect, test } from "bun:test";
import { join } from "node:path";
import { VirtualClock } from "../../src/lib/clock.ts";
import {
  ConnectGuard,
  PROBE_AFTER_MS,
  REACHABLE_FOR_MS,
} from "../../src/providers/openai/connect-guard.ts";
import { openTcpProbe, type TcpProbe, tcpTargetOf } from "../../src/providers/openai/tcp-probe.ts";
import { startRawServer } from "./http-raw-server.ts";
import { adapter, callOf, failureOf, serve } from "./openai-adapter.ts";

const TIMEOUT_MS = 5_000;

/** Probes that settle when they are told to. */
function heldProbes() {
  const opened: { settle: (reachable: boolean) => void; isGivenUp: boolean }[] = [];
  const probe: TcpProbe = (_target, settle) => {
    const one = { settle, isGivenUp: false };
    opened.push(one);
    return () => {
      one.isGivenUp = true;
    };
  };
  return { opened, probe };
}

function watchedGuard(timeoutMs = TIMEOUT_MS) {
  const clock = new VirtualClock();
  const { opened, probe } = heldProbes();
  const target = { host: "h", port: 1, isSecure: false };
  const guard = new ConnectGuard({ clock, probe, target, timeoutMs });
  const timeouts: number[] = [];
  const startMs = clock.nowMs();
  const watch = () => guard.watch(() => timeouts.push(clock.nowMs() - startMs));
  return { clock, guard, opened, timeouts, watch };
}

test("a call to an endpoint that no connection reaches times out at the connect timeout", () => {
  const { clock, opened, timeouts, watch } = watchedGuard();
  watch();
  clock.advance(PROBE_AFTER_MS - 1);
  expect(opened).toHaveLength(0);
  clock.advance(1);
  expect(opened).toHaveLength(1);
  clock.advance(TIMEOUT_MS);
  expect(timeouts).toEqual([TIMEOUT_MS]);
  clock.advance(TIMEOUT_MS);
  expect(opened.map((one) => one.isGivenUp)).toEqual([true]);
});

test("a short connect timeout is kept, with the probe at half of it", () => {
  const { clock, opened, timeouts, watch } = watchedGuard(200);
  watch();
  clock.advance(100);
  expect(opened).toHaveLength(1);
  clock.advance(1_000);
  expect(timeouts).toEqual([200]);
});

test.each([true, false])(
  "a probe that settles (%p) before the timeout leaves the call waiting",
  (reachable) => {
    const { clock, guard, opened, timeouts, watch } = watchedGuard();
    watch();
    clock.advance(TIMEOUT_MS - 1);
    opened[0]!.settle(reachable);
    clock.advance(10 * TIMEOUT_MS);
    expect(timeouts).toEqual([]);
    expect(opened).toHaveLength(1);
    expect(guard.isReachable(clock.nowMs())).toBe(false);
  },
);

test("an endpoint that answered is not probed for REACHABLE_FOR_MS", () => {
  const { clock, guard, opened, watch } = watchedGuard();
  guard.sawAnswer(clock.nowMs());
  expect(guard.isReachable(clock.nowMs())).toBe(true);
  watch();
  clock.advance(REACHABLE_FOR_MS - 1);
  expect(guard.isReachable(clock.nowMs())).toBe(true);
  expect(opened).toHaveLength(0);
  clock.advance(1);
  expect(guard.isReachable(clock.nowMs())).toBe(false);
  watch();
  clock.advance(PROBE_AFTER_MS);
  expect(opened).toHaveLength(1);
});

test("a call that got its answer starts no probe and does not time out", () => {
  const { clock, opened, timeouts, watch } = watchedGuard();
  const stopEarly = watch();
  clock.advance(PROBE_AFTER_MS / 2);
  stopEarly();
  clock.advance(PROBE_AFTER_MS);
  expect(opened).toHaveLength(0);
  const stopLate = watch();
  clock.advance(PROBE_AFTER_MS + 1);
  stopLate();
  clock.advance(2 * TIMEOUT_MS);
  expect(timeouts).toEqual([]);
  expect(opened.map((one) => one.isGivenUp)).toEqual([true]);
});

test("calls that wait share probes, of which few run at once however many calls there are", () => {
  const { clock, opened, timeouts, watch } = watchedGuard();
  for (let call = 0; call < 3_000; call++) {
    watch();
    clock.advance(1);
  }
  clock.advance(2 * TIMEOUT_MS);
  expect(timeouts).toHaveLength(3_000);
  expect(opened.length).toBeLessThanOrEqual(3_000 / PROBE_AFTER_MS + 1);
  expect(opened.every((one) => one.isGivenUp)).toBe(true);
});

test("a call does not trust a probe that began before it", () => {
  const { clock, opened, timeouts, watch } = watchedGuard();
  watch();
  clock.advance(PROBE_AFTER_MS + 500);
  watch();
  clock.advance(PROBE_AFTER_MS);
  expect(opened).toHaveLength(2);
  opened[1]!.settle(true);
  clock.advance(2 * TIMEOUT_MS);
  expect(timeouts).toEqual([TIMEOUT_MS]);
});

test("the adapter aborts an unreachable call with a failure of kind timeout", async () => {
  const clock = new VirtualClock();
  const sent = Promise.withResolvers<AbortSignal>();
  const provider = adapter("http://h.test/v1", {
    clock,
    probe: heldProbes().probe,
    connectTimeoutMs: TIMEOUT_MS,
    fetch: (_url, init) =>
      new Promise((_resolve, reject) => {
        const signal = init.signal!;
        signal.addEventListener("abort", () => reject(signal.reason));
        sent.resolve(signal);
      }),
  });
  const failure = failureOf(provider.chat(callOf("m")));
  const signal = await sent.promise;
  clock.advance(TIMEOUT_MS - 1);
  expect(signal.aborted).toBe(false);
  clock.advance(1);
  expect((await failure).kind).toBe("timeout");
  expect((await failure).message).toContain("connect");
});

test("an endpoint behind a proxy, which nobody can reach past it, is not probed", async () => {
  const clock = new VirtualClock();
  const { opened, probe } = heldProbes();
  for (const protocol of ["http:", "https:"]) {
    const answer = Promise.withResolvers<Response>();
    const provider = adapter(`${protocol}//h.test/v1`, {
      clock,
      probe,
      proxiedProtocols: [protocol],
      connectTimeoutMs: TIMEOUT_MS,
      fetch: () => answer.promise,
    });
    const call = provider.chat(callOf("m"));
    clock.advance(20 * TIMEOUT_MS);
    answer.resolve(Response.json({ choices: [{}] }));
    expect((await call).kind).toBe("completion");
  }
  expect(opened).toHaveLength(0);
});

test("an endpoint that answers slowly is not cut off by the connect timeout", async () => {
  const clock = new VirtualClock();
  const gate = Promise.withResolvers<void>();
  const arrived = Promise.withResolvers<void>();
  await using server = serve(async () => {
    arrived.resolve();
    await gate.promise;
    return Response.json({ choices: [{}] });
  });
  const probed = Promise.withResolvers<boolean>();
  const provider = adapter(server.baseUrl, {
    clock,
    connectTimeoutMs: TIMEOUT_MS,
    probe: (target, settle) =>
      openTcpProbe(target, (reachable) => {
        settle(reachable);
        probed.resolve(reachable);
      }),
  });
  const answer = provider.chat(callOf("m"));
  await arrived.promise;
  clock.advance(PROBE_AFTER_MS);
  expect(await probed.promise).toBe(true);
  clock.advance(20 * TIMEOUT_MS);
  gate.resolve();
  expect((await answer).kind).toBe("completion");
});

test("a server that takes connections, and says nothing of TLS, is one that no connection reaches", async () => {
  await using server = startRawServer(() => undefined);
  const { port } = new URL(server.url);
  const provider = adapter(`https://127.0.0.1:${port}/v1`, { connectTimeoutMs: 200 });
  const signal = AbortSignal.timeout(3_000);
  expect((await failureOf(provider.chat(callOf("m", { signal })))).kind).toBe("timeout");
});

test("a probe of a server with TLS settles when that stands, whoever signed its certificate", async () => {
  const fixture = (name: string) => Bun.file(join(import.meta.dir, "../fixtures/tls", name));
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    tls: { cert: fixture("receiver.test.crt"), key: fixture("receiver.test.key") },
    fetch: () => new Response("ok"),
  });
  for (const host of ["127.0.0.1", "localhost"]) {
    const settled = Promise.withResolvers<boolean>();
    openTcpProbe({ host, port: server.port!, isSecure: true }, settled.resolve);
    expect(await settled.promise).toBe(true);
  }
  await server.stop(true);
});

test("a probe of a port that refuses settles as unreachable", async () => {
  const settled = Promise.withResolvers<boolean>();
  openTcpProbe({ host: "127.0.0.1", port: 1, isSecure: false }, settled.resolve);
  expect(await settled.promise).toBe(false);
});

test.each([
  ["http://h.test/v1", "h.test", 80],
  ["https://h.test/v1", "h.test", 443],
  ["https://h.test:8443/v1", "h.test", 8443],
  ["http://[2001:db8::1]:8000/v1", "2001:db8::1", 8000],
  ["https://[::1]/v1?api-version=1", "::1", 443],
])("connections of %s go to %s, port %d", (url, host, port) => {
  expect(tcpTargetOf(url)).toEqual({ host, port, isSecure: url.startsWith("https") });
});
