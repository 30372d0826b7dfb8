import { composeGateway, type Gateway } from "./compose.ts";
import { type GatewayConfig, readConfig } from "./config.ts";
import { type StartedDatabase, startDatabase } from "./start/database.ts";
import { baseUrl, createFirstKeys, type FirstKeys, nameBaseUrl } from "./start/first-keys.ts";
import { loadMasterKey } from "./start/master-key.ts";
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
    signals.handOver(() => void stop(running).catch(fail));
  } catch (error) {
    // What stopped the start is told, not what it left behind.
    await gateway?.close().catch(() => {});
    await database.stop();
    throw error;
  }
}

interface Server {
  readonly port: number;
  stop(): void;
}

function listen({ app }: Gateway, config: GatewayConfig): Server {
  app.listen({ port: config.port, hostname: config.host, reusePort: false });
  const { server } = app;
  if (!server) throw new Error(`cannot listen on ${config.host}:${config.port}`);
  return { port: server.port!, stop: () => void server.stop(false) };
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

interface Running {
  readonly gateway: Gateway;
  readonly server: Server;
  readonly database: StartedDatabase;
  readonly telemetry: Telemetry;
  readonly config: GatewayConfig;
}

/** Without a database nothing can be closed properly; the next start settles what is left. */
const CLOSE_TIMEOUT_MS = 5_000;

/** Takes nothing new, lets what runs end, and exits 0; or 1 where the database kept it from closing. */
async function stop({ gateway, server, database, telemetry, config }: Running): Promise<void> {
  telemetry.log.info("no new requests; what runs may end");
  server.stop();
  await gateway.drain(config.shutdownGraceMs);
  const isClosed = await Promise.race([
    gateway.close().then(
      () => true,
      () => false,
    ),
    Bun.sleep(CLOSE_TIMEOUT_MS).then(() => false),
  ]);
  if (!isClosed) telemetry.log.error("the database does not answer; ending without it");
  await database.stop();
  await telemetry.close();
  process.exit(isClosed ? 0 : 1);
}

await start().catch(fail);
