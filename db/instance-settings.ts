/**
 * What the server does where an instance stands still or its machine is gone. A paused process keeps its
 * sessions, and with them the locks of a transaction that it is in: those end before its lease does, so
 * that they cannot keep others from taking over. What it was writing is then rolled back.
 */
export const INSTANCE_SETTINGS: Record<string, string> = {
  idle_in_transaction_session_timeout: "2000",
  tcp_keepalives_idle: "5",
  tcp_keepalives_interval: "2",
  tcp_keepalives_count: "3",
};

/**
 * A heartbeat that waits for a lock ends before it is given up, with its session, for a new one: else the
 * server would keep one session after the other waiting. Milliseconds.
 */
export const HEARTBEAT_SETTINGS: Record<string, string> = { lock_timeout: "1000" };
