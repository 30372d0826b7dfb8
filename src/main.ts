import { composeGateway, type Gateway } from "./compose.ts";
import { type GatewayConfig, readConfig } from "./config.ts";
import { startDatabase } from "./start/database.ts";
import { baseUrl, createFirstKeys, type FirstKeys, nameBaseUrl } from "./start/first-keys.ts";
import { loadMasterKey } from "./start/master-key.ts";
import { type Server, stopInOrder } from "./start/stop-in-order.ts";
import { StopSignals } from "./start/stop-signals.ts";
import { createTelemetry } from "./telemetry/create-telemetry.ts";
import type { Telemetry } from "./telemetry/interface.ts";

/** Failures of a start are one line: what is wrong, and what to do. */
function fail(error: unknown): never {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exit(1);
}

async function start(): Promise<void> {
  const config = readConfig(process.env);
  const telemetry = createTelemetry({ level: config.logLevel });
  for (const warning of config.warnings) telemetry.log.warn(warning);
  const signals = new StopSignals((signal) => telemetry.log.info(`stopping: ${signal}`));
  const database = await startDatabase(config, (message) => telemetry.log.info(message));
  let gateway: Gateway | undefined;
  try {
    signals.assertNone();
    const isTerminal = process.stdout.isTTY === true;
    const keys = await createFirstKeys(config, database.target, isTerminal);
    gateway = await composeGateway({
      config,
      database: database.target,
      masterKey: loadMasterKey(config),
      telemetry,
      onFenced: () => {
        telemetry.log.fatal("this instance was declared dead by another one; stopping");
        process.exit(1);
      },
    });
    signals.assertNone();
    const server = listen(gateway, config);
    announce(telemetry, config, server.port, keys);
    const running = { gateway, server, database, telemetry, config };
    signals.handOver(() => void stopInOrder(running).then(process.exit, fail));
  } catch (error) {
    // What stopped the start is told, not what it left behind.
    await gateway?.close().catch(() => {});
    await database.stop();
    throw error;
  }
}

function listen({ app }: Gateway, config: GatewayConfig): Server {
  app.listen({ port: config.port, hostname: config.host, reusePort: false });
  const { server } = app;
  if (!server) throw new Error(`cannot listen on ${config.host}:${config.port}`);
  return { port: server.port!, stop: () => server.stop(false) };
}

function announce(
  telemetry: Telemetry,
  config: GatewayConfig,
  port: number,
  keys: FirstKeys | undefined,
): void {
  const url = baseUrl(config, port);
  if (keys?.path !== undefined) {
    if (port !== config.port) nameBaseUrl(keys, url);
    telemetry.log.info(`the first keys are in ${keys.path}; keep them and delete the file`);
  } else if (keys !== undefined) {
    process.stdout.write(
      `\n  Base URL         ${url}\n  Management key   ${keys.managementKey}\n  Secret key       ${keys.secretKey}\n\n  The keys are shown this once.\n\n`,
    );
  }
  telemetry.log.info({ port }, `listening on ${url}`);
}

await start().catch(fail);
