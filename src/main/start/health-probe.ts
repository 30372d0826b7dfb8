/* Health check of the container: exits with 0 if the gateway of this container is alive. */

const TIMEOUT_MS = 2_500;

const isAlive = await fetch(`http://127.0.0.1:${process.env.PORT || 3000}/healthz`, {
  signal: AbortSignal.timeout(TIMEOUT_MS),
}).then(
  ({ ok }) => ok,
  () => false,
);
process.exit(isAlive ? 0 : 1);
