/** Fields that an HTTP client sets itself: about the message, its connection and the route to the server. */
export const CLIENT_FIELDS: ReadonlySet<string> = new Set([
  "host",
  "connection",
  "content-length",
  "transfer-encoding",
  "expect",
  "upgrade",
  "proxy-authorization",
]);
