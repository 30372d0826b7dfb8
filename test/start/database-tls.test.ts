import { afterAll, beforeAll, expect, test } from "bun:test";
import { chmodSync, chownSync, copyFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { connectDatabase } from "../../db/client.ts";
import { describeFailure } from "../../db/connect-failure.ts";
import { startEmbeddedPostgres } from "../../db/embedded.ts";
import { readConfig } from "../../src/platform/config.ts";
import { temporaryFolders } from "../embedded/owner-process.ts";
import { createTestDatabase } from "../support/database.ts";
import { until } from "../support/until.ts";

const TIMEOUT_MS = 60_000;
const CERTIFICATES = join(import.meta.dir, "../fixtures/tls");
const certificate = (name: string) => join(CERTIFICATES, `transport-${name}`);

const folders = temporaryFolders();
let server: Awaited<ReturnType<typeof startEmbeddedPostgres>>;
let cluster: string;
beforeAll(async () => {
  const dataDir = folders.next();
  const options = { dataDir, log: () => {}, transport: "tcp" } as const;
  const first = await startEmbeddedPostgres(options);
  await first.stop();
  cluster = join(dataDir, "postgres");
  // Of the clients' certificates the self-signed one is trusted.
  give("client-authorities.crt", "self.crt");
  presentCertificate("good");
  const settings = {
    ssl: "on",
    ssl_cert_file: "server.crt",
    ssl_key_file: "server.key",
    ssl_ca_file: "client-authorities.crt",
  };
  server = await startEmbeddedPostgres({ ...options, settings });
}, TIMEOUT_MS);

/** Copies a file to where the server, which may run as another user, reads it. */
function give(name: string, source: string): void {
  const path = join(cluster, name);
  const { uid, gid } = statSync(cluster);
  copyFileSync(certificate(source), path);
  chownSync(path, uid, gid);
  chmodSync(path, 0o600);
}

function presentCertificate(name: string): void {
  give("server.crt", `${name}.crt`);
  give("server.key", `${name}.key`);
}

afterAll(async () => {
  await server.stop();
  folders.remove();
});

/** What the server says of a connection with these parameters, or why there is none. */
async function connect(
  parameters: Record<string, string>,
  url = new URL(server.url),
): Promise<string> {
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
  const sql = connectDatabase({ url: url.href }, { poolSize: 1, applicationName: "tls" });
  try {
    const [row] = await sql<{ ssl: boolean; client_dn: string | null }[]>`
      SELECT ssl, client_dn FROM pg_stat_ssl WHERE pid = pg_backend_pid()`;
    return [row!.ssl ? "TLS" : "no TLS", row!.client_dn].filter(Boolean).join(", ");
  } catch (error) {
    return describeFailure(error);
  } finally {
    await sql.end({ timeout: 0 });
  }
}

const ca = certificate("ca.crt");
const otherAuthority = certificate("self.crt");
const UNKNOWN =
  "the server's certificate is signed by an unknown authority: set sslrootcert to the certificate of that authority";

test.each([
  ["without parameters there is no TLS", {}, "no TLS"],
  ["disable: no TLS", { sslmode: "disable" }, "no TLS"],
  ["prefer: TLS where it is offered", { sslmode: "prefer" }, "TLS"],
  ["require: TLS, and no certificate is verified", { sslmode: "require" }, "TLS"],
  ["require with an authority verifies it", { sslmode: "require", sslrootcert: ca }, "TLS"],
  ["verify-ca", { sslmode: "verify-ca", sslrootcert: ca }, "TLS"],
  ["verify-full", { sslmode: "verify-full", sslrootcert: ca }, "TLS"],
  ["an authority alone means verify-full", { sslrootcert: ca }, "TLS"],
  [
    "a client's certificate is shown to the server",
    {
      sslmode: "require",
      sslcert: certificate("self.crt"),
      sslkey: certificate("self.key"),
    },
    "TLS, /CN=self",
  ],
  [
    "parameters of other clients are not handed to the server",
    { sslmode: "require", channel_binding: "prefer", gssencmode: "disable", pgbouncer: "true" },
    "TLS",
  ],
] as const)("%s", async (_, parameters, found) => {
  expect(await connect(parameters)).toBe(found);
});

test.each([
  ["verify-ca with another authority", { sslmode: "verify-ca", sslrootcert: otherAuthority }],
  ["verify-full with another authority", { sslmode: "verify-full", sslrootcert: otherAuthority }],
  ["require with another authority", { sslmode: "require", sslrootcert: otherAuthority }],
  ["verify-full with the authorities of the system", { sslmode: "verify-full" }],
] as const)("%s is refused", async (_, parameters) => {
  expect(await connect(parameters)).toBe(UNKNOWN);
});

test("only verify-full compares the server's name with its certificate", async () => {
  presentCertificate("other");
  const admin = connectDatabase(server, { poolSize: 1, applicationName: "admin" });
  await admin`SELECT pg_reload_conf()`;
  await admin.end({ timeout: 1 });
  await until(
    "the server shows the certificate of another host",
    async () =>
      (await connect({ sslmode: "verify-full", sslrootcert: ca })) ===
      "the server's certificate is for another host",
  );
  expect(await connect({ sslmode: "verify-ca", sslrootcert: ca })).toBe("TLS");
});

test("a server without TLS is named if sslmode asks for it, and used if it prefers it", async () => {
  const plain = await createTestDatabase();
  const url = new URL(plain.url);
  try {
    expect(await connect({ sslmode: "require" }, url)).toBe(
      "the server does not offer TLS, which sslmode requires",
    );
    expect(await connect({ sslmode: "prefer" }, url)).toBe("no TLS");
  } finally {
    await plain.drop();
  }
});

test.each([
  ["sslmode=sometimes", "has sslmode=sometimes, but must have one of disable, allow, prefer"],
  [
    "sslrootcert=/nowhere/ca.crt",
    "names sslrootcert=/nowhere/ca.crt, which cannot be read (ENOENT)",
  ],
  [`sslrootcert=${import.meta.path}`, "which holds no PEM"],
  [`sslcert=${ca}`, "has one of sslcert and sslkey, but must have both or neither"],
])("DATABASE_URL with %s is refused by the configuration", (parameters, fault) => {
  const DATABASE_URL = `postgres://gateway:hidden@127.0.0.1/gateway?${parameters}`;
  const GATEWAY_MASTER_KEY = Buffer.alloc(32, 7).toString("base64");
  const read = () => readConfig({ DATABASE_URL, GATEWAY_MASTER_KEY }, { cwd: import.meta.dir });
  expect(read).toThrow(fault);
  expect(read).toThrow(/^DATABASE_URL /);
  expect(read).not.toThrow("hidden");
});
