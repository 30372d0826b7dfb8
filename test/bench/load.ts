import { runAborts } from "./load-aborts.ts";
import type { AbortSpec, LoadSpec } from "./load-protocol.ts";
import { LoadRun } from "./load-run.ts";

/* The load generator: a process of its own, which receives orders and reports results. */

process.on("message", (spec: LoadSpec | AbortSpec) => {
  const work = spec.kind === "load" ? new LoadRun(spec).run() : runAborts(spec);
  work.then(
    (result) => process.send?.(result),
    (error: unknown) => process.send?.({ error: String(error) }),
  );
});
process.on("disconnect", () => process.exit(0));
process.send?.({ ready: true });
