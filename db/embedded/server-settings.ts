/** Where the server listens. */
export type ServerAddress =
  | { readonly kind: "unix"; readonly socketDir: string }
  | { readonly kind: "tcp"; readonly port: number };

export type ServerSettings = Readonly<Record<string, string>>;

/** With a Unix socket the port is only a part of the socket's name. */
export const SOCKET_PORT = 5432;
export const SUPERUSER = "postgres";

const SETTINGS: ServerSettings = {
  shared_buffers: "64MB",
  max_connections: "100",
  max_wal_size: "1GB",
  wal_level: "minimal",
  max_wal_senders: "0",
  max_logical_replication_workers: "0",
  // Durability of the ledger.
  fsync: "on",
  synchronous_commit: "on",
  full_page_writes: "on",
  autovacuum: "on",
  jit: "off",
  // Saves three worker processes; the data fits in memory.
  io_method: "sync",
  timezone: "UTC",
  log_timezone: "UTC",
  // Errors of statements reach the gateway, which reports them. Here they could fill the disk on a
  // caller's wish, and would carry values out of requests.
  log_min_messages: "log",
  log_min_error_statement: "panic",
  log_error_verbosity: "terse",
  log_checkpoints: "off",
  log_line_prefix: "%m [%p] ",
  logging_collector: "off",
};

/** The server's command line after the program's name. */
export function serverArguments(
  clusterDir: string,
  address: ServerAddress,
  extra: ServerSettings,
): string[] {
  const listening: ServerSettings =
    address.kind === "unix"
      ? {
          listen_addresses: "",
          port: String(SOCKET_PORT),
          unix_socket_directories: `"${address.socketDir.replaceAll('"', '""')}"`,
          unix_socket_permissions: "0700",
        }
      : {
          listen_addresses: "127.0.0.1",
          port: String(address.port),
          unix_socket_directories: "",
        };
  const settings = { ...SETTINGS, ...extra, ...listening };
  const pairs = Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
  return ["-D", clusterDir, ...pairs];
}

/** A URL for readPostgresUrl of db/postgres-url.ts. */
export function serverUrl(address: ServerAddress, password: string | undefined): string {
  if (address.kind === "unix") {
    const folder = encodeURIComponent(address.socketDir);
    return `postgres://${SUPERUSER}@localhost:${SOCKET_PORT}/postgres?host=${folder}`;
  }
  const login = password === undefined ? SUPERUSER : `${SUPERUSER}:${password}`;
  return `postgres://${login}@127.0.0.1:${address.port}/postgres`;
}
