import { expect, test } from "bun:test";
import { SCOPES, type Scope } from "../../src/lib/api-key-record.ts";
import { ROLE_RIGHTS, ROLES } from "../../src/lib/roles.ts";
import { readText } from "./pages.ts";

const PAGE = "docs/reference/api/members.md";

const quoted = (names: readonly string[]) => names.map((name) => `\`${name}\``).join(", ");

/** Returns the scopes in the words of the page. */
function scopesText(scopes: readonly Scope[]): string {
  const missing = SCOPES.filter((scope) => !scopes.includes(scope));
  if (missing.length === 0) return "everything";
  if (missing.length === 1) return `everything except ${quoted(missing)}`;
  return scopes.length === 0 ? "nothing" : quoted(scopes);
}

test("the page of members has the rights of each role", async () => {
  const page = await readText(PAGE);
  const rows = ROLES.map((role) => {
    const { description, changes, reads, grants } = ROLE_RIGHTS[role];
    const given = grants.length === 0 ? "none" : quoted(grants);
    return `| \`${role}\` | ${description} | ${scopesText(changes)} | ${scopesText(reads)} | ${given} |`;
  });
  const [, table = ""] = /\| role \| may \|.*\n\|[-|]+\n([\s\S]*?)\n\n/.exec(page) ?? [];
  expect(table.split("\n")).toEqual(rows);
  expect(page).toContain(`get these scopes: ${quoted(ROLE_RIGHTS.developer.keys ?? [])}.`);
});
