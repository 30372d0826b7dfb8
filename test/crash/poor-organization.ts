import { programFile } from "../support/programs.ts";

/** Another organization with this credit, created by the operator's command while a gateway runs. */
export function createPoorOrganization(
  environment: Readonly<Record<string, string>>,
  creditNano: bigint,
): { id: string; secret: string; managementKey: string } {
  const command = [process.execPath, "--no-env-file", programFile("cli")];
  const { stdout, stderr, success } = Bun.spawnSync(
    [...command, "org", "create", "--name", "Poor", "--json"],
    {
      env: {
        PATH: process.env.PATH,
        ...environment,
        GATEWAY_STARTING_CREDIT_USD: (Number(creditNano) / 1e9).toFixed(9),
      },
    },
  );
  if (!success) throw new Error(`no organization: ${stderr}`);
  const made = JSON.parse(stdout.toString()) as {
    organization: { id: string };
    secret_key: string;
    management_key: string;
  };
  return {
    id: made.organization.id,
    secret: made.secret_key,
    managementKey: made.management_key,
  };
}
