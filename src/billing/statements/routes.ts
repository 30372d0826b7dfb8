import { Type } from "typebox";
import type { Database } from "../../../db/client.ts";
import { type CsvRow, csvResponse } from "../../http/csv.ts";
import { jsonResponse } from "../../http/error-response.ts";
import { type Access, nullable, type RouteDefinition, route } from "../../http/route.ts";
import { GatewayError } from "../../lib/errors.ts";
import { usdNumber } from "../../lib/money.ts";
import { KIND_NAMES, STATEMENT_COLUMNS, TRANSACTION_KINDS } from "../../lib/transaction-kinds.ts";
import { statementPdf } from "./statement-pdf.ts";
import {
  findStatement,
  listStatements,
  modelTitle,
  type Statement,
  type StatementTotals,
} from "./statements.ts";

const totalsFields = {
  month: Type.String({ description: "YYYY-MM, UTC." }),
  opening_balance_usd: Type.Number(),
  topups_usd: Type.Number(),
  usage_usd: Type.Number({ description: "Charges without the plan's fees; negative." }),
  fees_usd: Type.Number({
    description: "The plan's fees; negative. Charges of version 1.0 do not state theirs.",
  }),
  adjustments_usd: Type.Number({
    description: "Starting credit, changes by operators, refunds to cards and disputes.",
  }),
  refunds_usd: Type.Number({ description: "Charges that were given back, with their fees." }),
  closing_balance_usd: Type.Number({
    description: "The opening balance plus all other amounts.",
  }),
  is_final: Type.Boolean({
    description: "False until 10 minutes after the end of the month, while figures can change.",
  }),
};

const statementList = Type.Object(
  { data: Type.Array(Type.Object(totalsFields, { title: "StatementTotals" })) },
  { title: "StatementList" },
);

const statementSchema = Type.Object(
  {
    ...totalsFields,
    organization: Type.Object({ id: Type.String(), name: Type.String() }),
    movements: Type.Array(
      Type.Object({
        kind: Type.Enum([...KIND_NAMES]),
        column: Type.Enum(STATEMENT_COLUMNS.filter((column) => column !== "fees")),
        transactions: Type.Integer(),
        amount_usd: Type.Number(),
      }),
      { description: "The amounts of the columns by kind of transaction, without fees." },
    ),
    models: Type.Array(
      Type.Object({
        model: nullable(
          Type.String({ description: "Null for the sum of the models that are not listed." }),
        ),
        transactions: Type.Integer(),
        usage_usd: Type.Number(),
        fees_usd: Type.Number(),
      }),
      { description: "The 200 models with the largest charges, and the sum of all others." },
    ),
  },
  { title: "Statement" },
);

const formatQuery = Type.Object(
  { format: Type.Optional(Type.Enum(["json", "csv", "pdf"], { default: "json" })) },
  { additionalProperties: false },
);

const tag = "Billing";
const access: Access = { kind: "administration", scope: "billing:read" };

/** Returns the routes of monthly statements (contract 15). */
export function statementRoutes(sql: Database): RouteDefinition[] {
  return [
    route({
      method: "GET",
      path: "/v1/billing/statements",
      tag,
      operationId: "billing.statements.list",
      summary: "List statements",
      description:
        "Has one statement for each month since the organization was created, the newest first.",
      access,
      responses: { 200: { description: "Statements.", schema: statementList } },
      async handle({ caller: { key } }) {
        const statements = await listStatements(sql, key.organizationId);
        return jsonResponse({ data: statements.map(totalsShape) });
      },
    }),
    route({
      method: "GET",
      path: "/v1/billing/statements/:month",
      tag,
      operationId: "billing.statements.retrieve",
      summary: "Retrieve a statement",
      description: "With `format=csv` or `format=pdf` the answer is a file.",
      access,
      query: formatQuery,
      responses: {
        200: { description: "The statement.", schema: statementSchema },
        404: { description: "The organization has no statement of this month." },
      },
      async handle({ params: { month }, query: { format = "json" }, caller: { key } }) {
        const statement = await findStatement(sql, key.organizationId, month);
        if (statement === undefined) {
          throw new GatewayError(
            "statement_not_found",
            "There is no statement of this month. Months are written YYYY-MM, from the organization's first month to the current one.",
          );
        }
        if (format === "csv") return csvResponse(fileName(statement, "csv"), csvRows(statement));
        if (format === "json") return jsonResponse(statementShape(statement));
        return new Response(await statementPdf(statement), {
          headers: {
            "content-type": "application/pdf",
            "content-disposition": `attachment; filename="${fileName(statement, "pdf")}"`,
            "x-content-type-options": "nosniff",
          },
        });
      },
    }),
  ];
}

function fileName({ month }: Statement, ending: string): string {
  return `statement-${month}.${ending}`;
}

function totalsShape({ month, opening, closing, isFinal, ...columns }: StatementTotals) {
  return {
    month,
    opening_balance_usd: usdNumber(opening),
    topups_usd: usdNumber(columns.topups),
    usage_usd: usdNumber(columns.usage),
    fees_usd: usdNumber(columns.fees),
    adjustments_usd: usdNumber(columns.adjustments),
    refunds_usd: usdNumber(columns.refunds),
    closing_balance_usd: usdNumber(closing),
    is_final: isFinal,
  };
}

function statementShape(statement: Statement) {
  return {
    ...totalsShape(statement),
    organization: statement.organization,
    movements: statement.movements.map(({ kind, column, transactions, amountNano }) => ({
      kind,
      column,
      transactions: Number(transactions),
      amount_usd: usdNumber(amountNano),
    })),
    models: statement.models.map(({ model, transactions, usageNano, feesNano }) => ({
      model: model ?? null,
      transactions: Number(transactions),
      usage_usd: usdNumber(usageNano),
      fees_usd: usdNumber(feesNano),
    })),
  };
}

const HEADER = ["month", "line", "kind", "description", "transactions", "amount_usd"];

/** Returns lines of which each amount between the balances is in one, so that they add up. */
function csvRows({ month, opening, closing, movements, models }: Statement): CsvRow[] {
  const line = (name: string, kind: string, text: string, count: bigint | null, nanoUsd: bigint) =>
    [month, name, kind, text, count === null ? null : Number(count), { nanoUsd }] as const;
  return [
    HEADER,
    line("opening_balance", "", "Opening balance", null, opening),
    ...movements.flatMap(({ kind, column, transactions, amountNano }) =>
      column === "usage"
        ? []
        : [line(column, kind, TRANSACTION_KINDS[kind].title, transactions, amountNano)],
    ),
    ...models.map((one) =>
      line("usage", "charge", modelTitle(one), one.transactions, one.usageNano),
    ),
    ...models.flatMap((one) =>
      one.feesNano === 0n
        ? []
        : [line("fees", "charge", modelTitle(one), one.transactions, one.feesNano)],
    ),
    line("closing_balance", "", "Closing balance", null, closing),
  ];
}
