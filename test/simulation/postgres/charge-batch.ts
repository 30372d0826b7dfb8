import type { BatchRows } from "./batch-rows.ts";

const ACCOUNT_FIGURES = 2;
const FIGURES = 9;
const GROUP_TEXTS = 5;
const GROUP_FIGURES = 3;

type Parameters = readonly [
  instance: string,
  epoch: string,
  accounts: string,
  sums: string,
  requests: string,
  figures: string,
  details: string | null,
  groups: string,
  groupFigures: string,
  rare: string | null,
];

/** The parameters of ledger_charge, put together again. */
export function chargeBatch(parameters: readonly string[]): BatchRows {
  const [instance, epoch, accounts, sums, requests, figures, , groups, groupFigures, rare] =
    parameters as unknown as Parameters;
  const sumsOf = inPieces(arrayOf(sums), ACCOUNT_FIGURES);
  const figuresOf = inPieces(arrayOf(figures), FIGURES);
  const groupFiguresOf = inPieces(arrayOf(groupFigures), GROUP_FIGURES);
  return {
    instance,
    epoch,
    accounts: arrayOf(accounts).map((id, at) => {
      const [charged = "", count = ""] = sumsOf[at]!;
      return { n: at + 1, id, c: charged, q: Number(count) };
    }),
    settlements: arrayOf(requests).map((r, at) => {
      const [group, place, charge = "", sum = ""] = figuresOf[at]!;
      return { n: Number(place), g: Number(group), r, c: charge, t: sum };
    }),
    groups: inPieces(arrayOf(groups), GROUP_TEXTS).map((texts, at) => {
      const [organization_id = "", key_id = "", , , description = ""] = texts;
      return { g: at + 1, o: Number(groupFiguresOf[at]![0]), organization_id, key_id, description };
    }),
    ...(rare === null ? {} : (JSON.parse(rare) as Partial<BatchRows>)),
  };
}

const ELEMENT = /"((?:[^"\\]|\\.)*)"|([^{},"]+)/gs;

function arrayOf(text: string): string[] {
  return [...text.matchAll(ELEMENT)].map(([, quoted, plain]) =>
    quoted === undefined ? plain! : quoted.replace(/\\(.)/gs, "$1"),
  );
}

function inPieces(values: readonly string[], length: number): string[][] {
  const pieces: string[][] = [];
  for (let at = 0; at < values.length; at += length) pieces.push(values.slice(at, at + length));
  return pieces;
}
