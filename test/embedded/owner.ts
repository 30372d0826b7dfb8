import { startEmbeddedPostgres } from "../../db/embedded.ts";

/*
 * Stands in for a gateway: starts the embedded Postgres of the data folder in its first argument,
 * prints one line of JSON, keeps it until SIGTERM, and ignores Ctrl-C as one that is still draining.
 */

const [dataDir = "", transport = "unix", settings = "{}"] = process.argv.slice(2);
process.on("SIGINT", () => {});
try {
  const server = await startEmbeddedPostgres({
    dataDir,
    log: () => {},
    transport: transport === "tcp" ? "tcp" : "unix",
    settings: JSON.parse(settings) as Record<string, string>,
  });
  const idle = setInterval(() => {}, 60_000);
  process.on("SIGTERM", async () => {
    await server.stop();
    clearInterval(idle);
  });
  console.log(JSON.stringify({ url: server.url }));
} catch (error) {
  console.log(JSON.stringify({ refusal: (error as Error).message }));
}
