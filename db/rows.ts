import { type Column, getTableColumns, type Table } from "drizzle-orm";

type Columns<T extends Table> = T["_"]["columns"];
type Nullable<C extends Column, Value> = C["_"]["notNull"] extends true ? Value : Value | null;
type IsTime<C extends Column> = C["_"]["columnType"] extends "PgTimestamp" ? true : false;

/** A value as the driver returns it: times as Date, and every bigint as bigint. */
type DriverValue<C extends Column> =
  IsTime<C> extends true
    ? Date
    : C["_"]["columnType"] extends "PgBigInt53"
      ? bigint
      : C["_"]["data"];

/** A row of a table as the driver returns it: its members have the names of the columns in the database. */
export type RowOf<T extends Table> = {
  readonly [Key in keyof Columns<T> as ColumnName<Columns<T>[Key]>]: Nullable<
    Columns<T>[Key],
    DriverValue<Columns<T>[Key]>
  >;
};

/** The name of a column. A schema that lost it (`string`) has no members here, so that the compiler finds it. */
type ColumnName<C extends Column> = string extends C["_"]["name"] ? never : C["_"]["name"];

type TimeKey<T extends Table, Key extends keyof Columns<T>> =
  IsTime<Columns<T>[Key]> extends true ? `${Key & string}Ms` : Key;

/**
 * The record of a row: its members have the names of the schema. Times are in milliseconds since the epoch, and
 * their names end with Ms. A bigint is a number if the schema says so.
 */
export type RecordOf<T extends Table, LeftOut extends keyof Columns<T> = never> = {
  readonly [Key in Exclude<keyof Columns<T>, LeftOut> as TimeKey<T, Key>]: Nullable<
    Columns<T>[Key],
    IsTime<Columns<T>[Key]> extends true ? number : Columns<T>[Key]["_"]["data"]
  >;
};

const unchanged = (value: unknown) => value;
const CONVERSIONS: Readonly<Record<string, (value: never) => unknown>> = {
  PgTimestamp: (time: Date) => time.getTime(),
  PgBigInt53: Number,
};

/** Returns the function that makes records of a table's rows. The records lack the columns of `leftOut`. */
export function recordReader<T extends Table, LeftOut extends keyof Columns<T> & string = never>(
  table: T,
  ...leftOut: readonly LeftOut[]
): (row: RowOf<T>) => RecordOf<T, LeftOut> {
  const members = Object.entries(getTableColumns(table))
    .filter(([key]) => !(leftOut as readonly string[]).includes(key))
    .map(([key, { name, columnType }]) => ({
      name,
      key: columnType === "PgTimestamp" ? `${key}Ms` : key,
      convert: (CONVERSIONS[columnType] ?? unchanged) as (value: unknown) => unknown,
    }));
  return (row) => {
    const record: Record<string, unknown> = {};
    for (const { name, key, convert } of members) {
      const value = (row as Readonly<Record<string, unknown>>)[name];
      record[key] = value === null ? null : convert(value);
    }
    return record as RecordOf<T, LeftOut>;
  };
}
