/*
 * Runs before the tests of each process, and in test/run.ts, so that child processes without an
 * environment of their own have it too. Settings of the developer's environment, provider keys above
 * all, must neither decide a test nor be spent by one.
 */

const SETTINGS =
  /^(GATEWAY_(?!TEST_|SIM_).*|.*_API_KEY|.*_BASE_URL|DATABASE_URL|DATABASE_POOL_SIZE|REDIS_URL|S3_.*|STRIPE_.*|OTEL_.*|AWS_.*|PG[A-Z]+|PORT|HOST|DATA_DIR|LOG_LEVEL|https?_proxy|all_proxy)$/i;

for (const name of Object.keys(process.env)) {
  if (SETTINGS.test(name)) delete process.env[name];
}
