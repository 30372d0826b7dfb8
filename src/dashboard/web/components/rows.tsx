import type { ComponentChildren } from "preact";
import { Button } from "./controls.tsx";

interface RowsProps<Row> {
  /** Name of the list. */
  readonly legend: string;
  readonly rows: readonly Row[];
  /** The row that the button adds. */
  readonly blank: Row;
  /** Largest number of rows. */
  readonly max: number;
  /** Label of the button that adds a row. */
  readonly add: string;
  /** Name of one row for the buttons that remove it, such as "key". */
  readonly name: string;
  readonly hint?: ComponentChildren;
  onChange(rows: readonly Row[]): void;
  /** Returns the fields of a row. `number` is 1 for the first row. */
  fields(row: Row, set: (changed: Partial<Row>) => void, number: number): ComponentChildren;
}

/** A list of rows of fields in a form. The last row cannot be removed. */
export function Rows<Row>(props: RowsProps<Row>) {
  const { legend, rows, blank, max, add, name, hint, onChange, fields } = props;
  const replace = (index: number, ...by: readonly Row[]) =>
    onChange(rows.toSpliced(index, 1, ...by));
  return (
    <fieldset class="rows">
      <legend>{legend}</legend>
      {rows.map((row, index) => (
        <div key={`row ${index}`} class="fields">
          {fields(row, (changed) => replace(index, { ...row, ...changed }), index + 1)}
          {rows.length > 1 && (
            <Button
              variant="quiet"
              label={`Remove ${name} ${index + 1}`}
              onClick={() => replace(index)}
            >
              ✕
            </Button>
          )}
        </div>
      ))}
      {hint !== undefined && <p class="hint">{hint}</p>}
      <div>
        <Button isDisabled={rows.length >= max} onClick={() => onChange([...rows, blank])}>
          {add}
        </Button>
      </div>
    </fieldset>
  );
}
