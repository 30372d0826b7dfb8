import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { Button } from "./controls.tsx";
import { LoadFailure, Skeleton } from "./display.tsx";
import { ActionMenu } from "./menu.tsx";

export interface Column<Row> {
  readonly title: string;
  /** Numbers are aligned to the end. */
  readonly isNumber?: boolean;
  /** Hidden on narrow screens. */
  readonly isSecondary?: boolean;
  /** A badge. On cards it is in the corner, without its title. */
  readonly isCorner?: boolean;
  /** True for a column that the viewer can show or hide. */
  readonly isOptional?: boolean;
  /** True for an optional column that is hidden at first. */
  readonly isHidden?: boolean;
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
export function Table<Row>({
  label,
  columns: offered,
  rows,
  error,
  empty,
  keyOf,
}: TableProps<Row>) {
  const { columns, menu } = useColumns(label, offered);
  if (error !== undefined && rows === undefined) {
    return (
      <div class="empty">
        <LoadFailure message={error} />
      </div>
    );
  }
  if (rows?.length === 0) return <>{empty}</>;
  return (
    <div class="table-room">
      <table role="table" aria-label={label} aria-busy={rows === undefined}>
        <thead>
          <tr role="row">
            {columns.map((column, index) => (
              <th key={column.title} scope="col" class={classOf(column)}>
                {column.isAction ? <span class="unseen">{column.title}</span> : column.title}
                {index === columns.length - 1 && menu}
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

/** Whether optional columns are shown, by their titles. Absent: as the page states. */
type ColumnChoice = Readonly<Record<string, boolean>>;

const CHOICE_PREFIX = "columns ";

/** Returns the columns that the viewer has chosen, in this browser, and a menu to choose them. */
function useColumns<Row>(
  label: string,
  offered: readonly Column<Row>[],
): { columns: readonly Column<Row>[]; menu: ComponentChildren } {
  const [choice, setChoice] = useState<ColumnChoice>(() => storedChoice(label));
  const optional = offered.filter(({ isOptional }) => isOptional);
  const isShown = ({ title, isOptional, isHidden }: Column<Row>) =>
    !isOptional || (choice[title] ?? !isHidden);
  const toggle = (column: Column<Row>) => {
    const next = { ...choice, [column.title]: !isShown(column) };
    setChoice(next);
    storeChoice(label, next);
  };
  return {
    columns: offered.filter(isShown),
    menu: optional.length > 0 && (
      <ActionMenu
        label={`Columns of ${label}`}
        icon="columns-3"
        items={optional.map((column) => ({
          label: column.title,
          isChecked: isShown(column),
          onSelect: () => toggle(column),
        }))}
      />
    ),
  };
}

/** Returns the choice that the browser has stored. Returns an empty one if it stores nothing. */
function storedChoice(label: string): ColumnChoice {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(CHOICE_PREFIX + label) ?? "{}");
    return typeof stored === "object" && stored !== null ? (stored as ColumnChoice) : {};
  } catch {
    return {};
  }
}

function storeChoice(label: string, choice: ColumnChoice): void {
  try {
    localStorage.setItem(CHOICE_PREFIX + label, JSON.stringify(choice));
  } catch {
    // A browser that stores nothing keeps the choice until the page is left.
  }
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

interface OffsetPagerProps {
  /** The loaded page of the list. Undefined while it is loading: then the buttons are hidden. */
  readonly listed: { readonly data: readonly unknown[]; readonly has_more?: boolean } | undefined;
  /** Number of all entries. Absent if it is not known. */
  readonly total?: number | undefined;
  readonly offset: number;
  readonly pageSize: number;
  onTurn(offset: number): void;
}

/** The pager of a list that is paged by offset. */
export function OffsetPager({ listed, total, offset, pageSize, onTurn }: OffsetPagerProps) {
  if (listed === undefined) return null;
  const count = listed.data.length;
  return (
    <Pager
      first={offset}
      count={count}
      {...(total !== undefined && { total })}
      hasMore={listed.has_more ?? offset + count < (total ?? 0)}
      onPrevious={offset === 0 ? undefined : () => onTurn(Math.max(0, offset - pageSize))}
      onNext={() => onTurn(offset + pageSize)}
    />
  );
}
