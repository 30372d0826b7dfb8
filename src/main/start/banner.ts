/** The lines that a start shows on a terminal. Without colors, and at most 80 columns wide if the host name is short. */

const LABEL_WIDTH = 17;

interface Banner {
  readonly version: string;
  /** URL of the gateway on this machine. */
  readonly url: string;
  /** The first secret key. Undefined after the first start, which alone shows it. */
  readonly secretKey: string | undefined;
  /** The link that creates the account of the first operator. Undefined after the first start. */
  readonly operatorUrl: string | undefined;
  readonly hasSandbox: boolean;
}

/** Returns the addresses of a gateway that listens, and a command to try. */
export function bannerText({ version, url, secretKey, operatorUrl, hasSandbox }: Banner): string {
  return block([
    `model-gateway ${version}`,
    "",
    row("Base URL", `${url}/v1`),
    row("Dashboard", `${url}/dashboard`),
    row("Documentation", `${url}/docs/`),
    ...(operatorUrl === undefined
      ? []
      : ["", "Create your operator account (the link works once, for 7 days):", "", operatorUrl]),
    "",
    "Try it in another terminal:",
    "",
    ...(secretKey === undefined ? [] : [`export SECRET_KEY=${secretKey}`]),
    ...(hasSandbox ? chatCommand(url) : modelsCommand(url)),
  ]);
}

/** Returns the first keys. */
export function keysText(keys: {
  readonly managementKey: string;
  readonly secretKey: string;
}): string {
  return block([
    row("Management key", keys.managementKey),
    row("Secret key", keys.secretKey),
    "",
    "These keys are shown only once.",
  ]);
}

function chatCommand(url: string): string[] {
  const messages = [{ role: "user", content: "Hello" }];
  return [
    `curl ${url}/v1/chat/completions \\`,
    '  -H "Authorization: Bearer $SECRET_KEY" \\',
    '  -H "Content-Type: application/json" \\',
    `  -d '${JSON.stringify({ model: "sandbox/chat", messages })}'`,
  ];
}

function modelsCommand(url: string): string[] {
  return [`curl ${url}/v1/models -H "Authorization: Bearer $SECRET_KEY"`];
}

function row(label: string, value: string): string {
  return `${label.padEnd(LABEL_WIDTH)}${value}`;
}

function block(lines: readonly string[]): string {
  return `\n${lines.map((line) => `  ${line}`.trimEnd()).join("\n")}\n\n`;
}
