import "../support/preload.ts";
import { fillOrganization, LARGE, ORDINARY } from "../support/filled-organization.ts";
import { startTestGateway } from "../support/gateway.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { addOperator } from "../support/operator-keys.ts";
import { usageFaults } from "../support/usage-faults.ts";

/*
 * A gateway with a month of ordinary use, or with ten million transactions of three months, to look at its
 * dashboard, until Ctrl-C:
 *
 *   bun test/dashboard/fill.ts [--large]
 */

const filling = process.argv.includes("--large") ? LARGE : ORDINARY;
const startedMs = performance.now();
const gateway = await startTestGateway({
  fill: (sql, organizationId) => fillOrganization(sql, organizationId, filling),
});
// Of the large one it would take minutes.
if (filling === ORDINARY) {
  await expectBooksClosed(gateway);
  const faults = await usageFaults(gateway.sql);
  if (faults.length > 0) throw new Error(JSON.stringify(faults.slice(0, 3)));
}
console.log(
  `${filling.transactions} transactions in ${((performance.now() - startedMs) / 1_000).toFixed(1)} s`,
);
console.log(`dashboard       ${gateway.baseUrl}/dashboard`);
console.log(`management key  ${gateway.managementKey}`);
console.log(`operator key    ${await addOperator(gateway)}`);
console.log(`secret key      ${gateway.secretKey}`);
console.log(`database        ${gateway.databaseUrl}`);
await new Promise((resolve) => process.once("SIGINT", resolve).once("SIGTERM", resolve));
await gateway.stop();
process.exit();
