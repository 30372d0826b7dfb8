const OTHER = "other";

/**
 * The series of a metric, made at first use, one for each pair of label values. Beyond `maximum`
 * pairs everything is counted under "other", so that no input can grow memory or the scrape.
 */
export class BoundedSeries<Series> {
  readonly #create: () => Series;
  readonly #byFirst = new Map<string, Map<string, Series>>();
  #room: number;
  #overflow: Series | undefined;

  constructor(maximum: number, create: () => Series) {
    this.#room = maximum;
    this.#create = create;
  }

  get(first: string, second = ""): Series {
    return this.#byFirst.get(first)?.get(second) ?? this.#add(first, second);
  }

  *entries(): Generator<readonly [first: string, second: string, series: Series]> {
    for (const [first, bySecond] of this.#byFirst) {
      for (const [second, series] of bySecond) yield [first, second, series];
    }
    if (this.#overflow !== undefined) yield [OTHER, OTHER, this.#overflow];
  }

  #add(first: string, second: string): Series {
    if (this.#room === 0) {
      this.#overflow ??= this.#create();
      return this.#overflow;
    }
    this.#room--;
    const series = this.#create();
    const bySecond = this.#byFirst.get(first);
    if (bySecond) bySecond.set(second, series);
    else this.#byFirst.set(first, new Map([[second, series]]));
    return series;
  }
}
