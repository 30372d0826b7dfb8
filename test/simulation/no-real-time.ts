import type { World } from "./world.ts";

type Replaced = { readonly on: object; readonly name: string; readonly with: unknown };

/**
 * Runs a schedule in which the world's time and chance stand in for the real ones everywhere, also where
 * code asks the platform and not its clock. Timers belong to the process whose event is being run.
 * `run` must be synchronous: nothing else may happen meanwhile.
 */
export function withoutRealTime<Result>(world: World, run: () => Result): Result {
  const replaced = replacements(world);
  const originals = replaced.map(({ on, name }) => (on as Record<string, unknown>)[name]);
  for (const { on, name, with: value } of replaced) (on as Record<string, unknown>)[name] = value;
  try {
    return run();
  } finally {
    for (const [index, { on, name }] of replaced.entries()) {
      (on as Record<string, unknown>)[name] = originals[index];
    }
  }
}

function replacements(world: World): Replaced[] {
  const after = (delayMs: number, run: () => void): (() => void) => {
    if (world.current === undefined) throw new Error("a timer of no process");
    return world.current.clock.after(delayMs, run);
  };
  const timer = (delayMs: number, run: () => void) => {
    const cancel = after(delayMs, run);
    return { cancel, ref: () => {}, unref: () => {}, hasRef: () => true };
  };
  const interval = (delayMs: number, run: () => void) => {
    let cancelNext = (): void => {};
    const next = (): void => {
      cancelNext = after(delayMs, () => {
        next();
        run();
      });
    };
    next();
    return { cancel: () => cancelNext() };
  };
  const cancel = (set: { cancel?: () => void } | undefined): void => set?.cancel?.();
  const refuse = (what: string) => () => {
    throw new Error(`${what} in a schedule`);
  };
  return [
    { on: Date, name: "now", with: () => Math.floor(world.nowMs) },
    { on: performance, name: "now", with: () => world.nowMs },
    { on: Math, name: "random", with: () => world.random.next() },
    { on: Bun, name: "sleep", with: (ms: number) => new Promise<void>((go) => after(ms, go)) },
    { on: Bun, name: "randomUUIDv7", with: () => orderedId(world) },
    { on: crypto, name: "randomUUID", with: () => orderedId(world) },
    { on: globalThis, name: "setTimeout", with: (run: () => void, ms = 0) => timer(ms, run) },
    { on: globalThis, name: "setImmediate", with: (run: () => void) => timer(0, run) },
    { on: globalThis, name: "clearTimeout", with: cancel },
    { on: globalThis, name: "clearImmediate", with: cancel },
    { on: globalThis, name: "setInterval", with: (run: () => void, ms = 0) => interval(ms, run) },
    { on: globalThis, name: "clearInterval", with: cancel },
    { on: globalThis, name: "fetch", with: refuse("a connection") },
  ];
}

/** As a UUIDv7: ordered by time, and unlike any other. */
function orderedId(world: World): string {
  const time = Math.floor(world.nowMs).toString(16).padStart(12, "0");
  const count = world.nextId().toString(16).padStart(12, "0");
  return `${time.slice(0, 8)}-${time.slice(8)}-7000-8000-${count}`;
}
