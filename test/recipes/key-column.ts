import { expect } from "bun:test";
import type { Recipe } from "./recipe.ts";

/** A note on each API key, which its managers set and change. */
export const keyColumn: Recipe = {
  heading: "A column of API keys",
  edits: [
    {
      path: "db/schema/organizations.ts",
      change: [
        { before: '    scopes: text("scopes").array()', insert: '    note: text("note"),\n' },
      ],
    },
    {
      path: "src/lib/api-key-record.ts",
      change: [
        {
          before: '  scopes: {\n    field: "scopes",\n',
          insert: `  note: {
    field: "note",
    kind: "text",
    initial: null,
    option: ["note", "text for people"],
  },
`,
        },
      ],
    },
    {
      path: "docs/reference/cli.md",
      change: [{ before: "| `--scopes A,B` |", insert: "| `--note TEXT` | text for people |\n" }],
    },
    {
      path: "src/dashboard/web/pages/key-dialog.tsx",
      change: [
        {
          before: '  scopes: { label: "Scopes" },\n};',
          insert: '  note: { label: "Note" },\n',
        },
        {
          replace: '<Fields of={["name"]} {...{ entries, set }} />',
          by: '<Fields of={["name", "note"]} {...{ entries, set }} />',
        },
      ],
    },
  ],
  needsMigration: true,
  async prove({ call }) {
    const created = await call("POST", "/v1/keys", { body: { name: "noted", note: "for CI" } });
    expect(created).toMatchObject({ status: 201, body: { note: "for CI" } });
    const path = `/v1/keys/${created.body.id}`;
    expect(await call("PATCH", path, { body: { note: "for tests" } })).toMatchObject({
      status: 200,
      body: { note: "for tests" },
    });
    expect(await call("GET", path)).toMatchObject({ body: { note: "for tests" } });
    expect(await call("PATCH", path, { body: { note: 5 } })).toMatchObject({ status: 400 });
    const log = await call("GET", "/v1/audit_log?action=key.updated");
    expect(log.body.data).toMatchObject([
      { before: { note: "for CI" }, after: { note: "for tests" } },
    ]);
  },
};
