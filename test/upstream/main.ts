import { parseArgs } from "node:util";
import { startUpstream } from "./server.ts";

const { values } = parseArgs({
  options: { port: { type: "string", default: "0" }, seed: { type: "string", default: "1" } },
});

const upstream = await startUpstream({
  port: Number(values.port),
  seed: Number(values.seed),
  remoteControl: true,
});
console.log(JSON.stringify({ base_url: upstream.baseUrl, pid: process.pid }));

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.on(signal, () => void upstream.stop().then(() => process.exit(0)));
}
