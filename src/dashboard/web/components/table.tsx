import type { ComponentChildren } from "preact";
import { Button } from "./controls.tsx";
import { Skeleton } from "./display.tsx";

export interface Column<Row> {
  readonly title: string;
  /** Numbers are aligned to the end. */
  readonly isNumber?: boolean;
  /** Hidden on narrow screens. */
  readonly isSecondary?: boolean;
  /** A badge. On cards it is in the corner, without its title. */
  readonly isCorner?: boolean;
  /** A column of buttons. Its title is for screen readers. */
  readonly isAction?: boolean;
  cell(row: Row): ComponentChildren;
}

interface TableProps<Row> {
  readonly label: string;
  readonly columns: readonly Column<Row>[];
  /** The rows. Undefined while they are loading. */
  readonly rows: readonly Row[] | undefined;
  readonly error?: string | undefined;
  readonly empty: ComponentChildren;
  keyOf(row: Row): string;
}

const LOADING_ROWS = 4;

/** A table. Its rows become cards on narrow screens. The roles keep it a table for screen readers. */
export function Table<Row>({ label, columns, rows, error, empty, keyOf }: TableProps<Row>) {
  if (error !== undefined && rows === undefined) {
    return (
      <p class="empty bad" role="alert">
        {error}
      </p>
    );
  }
  if (rows?.length === 0) return <>{empty}</>;
  return (
    <div class="table-room">
      <table role="table" aria-label={label} aria-busy={rows === undefined}>
        <thead>
          <tr role="row">
            {columns.map((column) => (
              <th key={column.title} scope="col" class={classOf(column)}>
                {column.isAction ? <span class="unseen">{column.title}</span> : column.title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows?.map((row) => (
            <tr key={keyOf(row)} role="row">
              {columns.map((column) => (
                <td
                  key={column.title}
                  role="cell"
                  class={classOf(column)}
                  data-title={column.title}
                >
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          )) ??
            Array.from({ length: LOADING_ROWS }, (_, index) => (
              <tr key={`loading ${index}`}>
                {columns.map((column) => (
                  <td key={column.title}>
                    <Skeleton />
                  </td>
                ))}
              </tr>
            ))}
        </tbody>
      </table>
    </div>
  );
}

function classOf({ isNumber, isSecondary, isCorner, isAction }: Column<never>): string {
  return [
    isNumber && "number",
    isSecondary && "secondary",
    isCorner && "corner",
    isAction && "action",
  ]
    .filter(Boolean)
    .join(" ");
}

interface PagerProps {
  readonly first: number;
  readonly count: number;
  readonly total?: number;
  readonly hasMore: boolean;
  onPrevious?: (() => void) | undefined;
  onNext(): void;
}

/** Buttons for the next and the previous page of a list. */
export function Pager({ first, count, total, hasMore, onPrevious, onNext }: PagerProps) {
  if (!hasMore && onPrevious === undefined) return null;
  return (
    <nav class="pager" aria-label="List pages">
      <span class="quiet">
        {count === 0 ? "No more entries" : `${first + 1}–${first + count}`}
        {total === undefined ? "" : ` of ${total.toLocaleString("en-US")}`}
      </span>
      <Button isDisabled={onPrevious === undefined} onClick={onPrevious}>
        Previous
      </Button>
      <Button isDisabled={!hasMore} onClick={onNext}>
        Next
      </Button>
    </nav>
  );
}
