/** A heat map of candidates by rows on a canvas: one pixel a cell in stored tiles, scaled when it is drawn. */

import { line as oneLine } from "../text/visible";
import { type Rgb, ramp, type Theme } from "./theme";

/** Rows of one tile: canvases have a greatest height. */
const TILE = 2_048;
const SHADES = 256;
const LARGEST_CELL = 40;
/** The width of a cell up to which a few candidates fill the map. */
const WIDEST = 180;
const TOP = 20;
const FONT = "12px system-ui, sans-serif";
/** The height that the name of a row takes. */
const NAME_HEIGHT = 14;
/** Rows up to which all names are shown, and the page scrolls if that takes more than the window. */
const ALL_NAMED = 100;

export interface Column {
  readonly name: string;
  /** By place of the row, NaN for a missing one. */
  readonly scores: Float64Array;
  /** 1 by place of each row on which the program failed. */
  readonly failed: Uint8Array | null;
}

export interface MapData {
  /** Columns from left to right, in bands that change apart from each other. */
  readonly bands: readonly (readonly Column[])[];
  /** Places of rows in the order shown. */
  readonly order: Uint32Array;
  readonly names: readonly (string | null)[];
  /** The beginnings of what rows contain, shown in place of names; empty for none. */
  readonly labels: readonly string[];
  readonly low: number;
  readonly high: number;
}

/** Return the height in CSS pixels that the names of all rows take; 0 if there are too many. */
export function heightOfNames(rows: number): number {
  return rows > ALL_NAMED ? 0 : TOP + rows * NAME_HEIGHT + 2;
}

/** Return the ends of the colour scale: 0 and 1 for scores between them, else the lowest and the highest score. */
export function scaleOf(columns: Iterable<Float64Array>): readonly [low: number, high: number] {
  let low = 0;
  let high = 1;
  for (const scores of columns) {
    for (const value of scores) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return [low, high];
}

/** A cell by its column and its place in the order shown. */
export interface Cell {
  readonly column: number;
  readonly line: number;
}

export class HeatMap {
  private data: MapData = { bands: [], order: new Uint32Array(), names: [], labels: [], low: 0, high: 1 };
  private columns: readonly Column[] = [];
  /** What is drawn of each band. */
  private tiles = new Map<readonly Column[], (HTMLCanvasElement | undefined)[]>();
  private cellWidth = 4;
  private cellHeight = 4;
  private left = 0;
  private top = 0;
  private pending = 0;
  private hatch: CanvasPattern | null = null;
  private gutter = 70;
  private fitted = false;
  cursor: Cell = { column: 0, line: 0 };
  /** The line below the pointer, whose name is always shown. */
  private hovered: number | null = null;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private theme: Theme,
  ) {}

  setTheme(theme: Theme): void {
    this.theme = theme;
    this.hatch = null;
    this.tiles.clear();
    this.redraw();
  }

  /** Show these data; a band that is the same object as before is not drawn again if rows and range are the same. */
  setData(data: MapData): void {
    const last = this.data;
    const same = last.order === data.order && last.low === data.low && last.high === data.high;
    for (const band of this.tiles.keys()) if (!same || !data.bands.includes(band)) this.tiles.delete(band);
    this.data = data;
    this.columns = data.bands.flat();
    this.moveTo(this.cursor, false);
    if (!this.fitted && this.columns.length > 0) this.fit();
    this.redraw();
  }

  /** Show all cells, at most as large as is readable. */
  fit(): void {
    this.gutter = gutterOf(this.canvas.clientWidth, this.data);
    const { width, height } = this.inside();
    if (width <= 0 || height <= 0) return;
    this.fitted = true;
    this.cellWidth = Math.min(WIDEST, width / Math.max(1, this.columns.length));
    this.cellHeight = Math.min(20, Math.max(0.5, height / Math.max(1, this.data.order.length)));
    this.left = 0;
    this.top = 0;
    this.redraw();
  }

  /** Zoom by a factor; `x`, `y`: the point in the canvas that stays, in CSS pixels; the cursor's without them. */
  zoomBy(factor: number, x = this.x(this.cursor.column), y = this.y(this.cursor.line)): void {
    const column = (x - this.gutter + this.left) / this.cellWidth;
    const line = (y - TOP + this.top) / this.cellHeight;
    this.cellWidth = Math.min(WIDEST, Math.max(0.25, this.cellWidth * factor));
    this.cellHeight = Math.min(LARGEST_CELL, Math.max(0.25, this.cellHeight * factor));
    this.left = column * this.cellWidth - (x - this.gutter);
    this.top = line * this.cellHeight - (y - TOP);
    this.scrollBy(0, 0);
  }

  /** Scroll, and return whether there was anything to scroll. */
  scrollBy(x: number, y: number): boolean {
    const { width, height } = this.inside();
    const [left, top] = [this.left, this.top];
    this.left = Math.max(0, Math.min(this.columns.length * this.cellWidth - width, this.left + x));
    this.top = Math.max(0, Math.min(this.data.order.length * this.cellHeight - height, this.top + y));
    this.redraw();
    return left !== this.left || top !== this.top;
  }

  /** Put the cursor on a cell and scroll it into sight. */
  moveTo(cell: Cell, inSight = true): void {
    this.cursor = {
      column: Math.max(0, Math.min(this.columns.length - 1, cell.column)),
      line: Math.max(0, Math.min(this.data.order.length - 1, cell.line)),
    };
    if (inSight) {
      const { width, height } = this.inside();
      const x = this.cursor.column * this.cellWidth;
      const y = this.cursor.line * this.cellHeight;
      this.left = Math.max(x + this.cellWidth - width, Math.min(x, this.left));
      this.top = Math.max(y + this.cellHeight - height, Math.min(y, this.top));
      this.scrollBy(0, 0);
    }
    this.redraw();
  }

  /** Show the name of the line at a point of the canvas; none beside the cells. */
  hover(x: number, y: number): void {
    const line = this.cellAt(x, y)?.line ?? null;
    if (line === this.hovered) return;
    this.hovered = line;
    this.redraw();
  }

  /** Return the cell at a point of the canvas, in CSS pixels; null beside the cells. */
  cellAt(x: number, y: number): Cell | null {
    const column = Math.floor((x - this.gutter + this.left) / this.cellWidth);
    const line = Math.floor((y - TOP + this.top) / this.cellHeight);
    const inside = x >= this.gutter && y >= TOP && column < this.columns.length && line < this.data.order.length;
    return inside && column >= 0 && line >= 0 ? { column, line } : null;
  }

  /** Lines that fit into the canvas. */
  linesShown(): number {
    return Math.max(1, Math.floor(this.inside().height / this.cellHeight));
  }

  redraw(): void {
    this.pending ||= requestAnimationFrame(() => {
      this.pending = 0;
      this.draw();
    });
  }

  close(): void {
    cancelAnimationFrame(this.pending);
  }

  private inside() {
    return { width: this.canvas.clientWidth - this.gutter, height: this.canvas.clientHeight - TOP };
  }

  private x(column: number): number {
    return this.gutter + column * this.cellWidth - this.left;
  }

  private y(line: number): number {
    return TOP + line * this.cellHeight - this.top;
  }

  private draw(): void {
    const { canvas, data, theme } = this;
    const unit = devicePixelRatio;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (width === 0 || height === 0) return;
    if (canvas.width !== Math.round(width * unit) || canvas.height !== Math.round(height * unit)) {
      canvas.width = Math.round(width * unit);
      canvas.height = Math.round(height * unit);
    }
    this.gutter = gutterOf(width, data);
    if (!this.fitted && this.columns.length > 0) this.fit();
    const context = canvas.getContext("2d", { alpha: false });
    if (context === null) return;
    context.setTransform(unit, 0, 0, unit, 0, 0);
    context.fillStyle = theme.panel;
    context.fillRect(0, 0, width, height);
    if (this.columns.length === 0 || data.order.length === 0) return;
    context.save();
    context.beginPath();
    context.rect(this.gutter, TOP, width, height);
    context.clip();
    this.drawCells(context, height);
    context.restore();
    this.drawNames(context, width, height);
    this.drawCursor(context, width, height);
  }

  /** Missing cells are transparent in the tiles, so that the pattern drawn first shows. */
  private drawCells(context: CanvasRenderingContext2D, height: number): void {
    const { data } = this;
    const right = this.x(this.columns.length);
    const bottom = Math.min(height, this.y(data.order.length));
    this.hatch ??= hatched(context, this.theme);
    if (this.hatch !== null) {
      context.fillStyle = this.hatch;
      context.fillRect(this.gutter, TOP, right - this.gutter, bottom - TOP);
    }
    context.imageSmoothingEnabled = this.cellHeight < 1 || this.cellWidth < 1;
    for (let tile = 0; tile * TILE < data.order.length; tile += 1) {
      const lines = Math.min(TILE, data.order.length - tile * TILE);
      const y = this.y(tile * TILE);
      if (y + lines * this.cellHeight < TOP || y > height) continue;
      const first = Math.max(0, Math.floor((TOP - y) / this.cellHeight));
      const last = Math.min(lines, Math.ceil((height - y) / this.cellHeight));
      if (last <= first) continue;
      let start = 0;
      for (const band of data.bands) {
        const from = Math.max(0, Math.floor(this.left / this.cellWidth) - start);
        const seen = Math.ceil((this.left + this.canvas.clientWidth) / this.cellWidth) - start;
        const to = Math.min(band.length, seen);
        if (to > from) {
          context.drawImage(
            this.tile(band, tile, lines),
            from,
            first,
            to - from,
            last - first,
            this.x(start + from),
            y + first * this.cellHeight,
            (to - from) * this.cellWidth,
            (last - first) * this.cellHeight,
          );
        }
        start += band.length;
      }
    }
    if (this.cellWidth >= 6 && this.cellHeight >= 6) this.drawFailures(context, height);
    if (this.cellWidth >= 34 && this.cellHeight >= 14) this.drawScores(context, height);
  }

  /** Do this with each cell in sight: its column, its row, and its middle. */
  private forCells(height: number, draw: (column: Column, row: number, x: number, y: number) => void): void {
    const { order } = this.data;
    const first = Math.max(0, Math.floor(this.top / this.cellHeight));
    const from = Math.max(0, Math.floor(this.left / this.cellWidth));
    for (let at = from; at < this.columns.length && this.x(at) < this.canvas.clientWidth; at += 1) {
      for (let line = first; line < order.length && this.y(line) < height; line += 1) {
        draw(this.columns[at] as Column, order[line] as number, this.x(at + 0.5), this.y(line + 0.5));
      }
    }
  }

  /** Cross out the cells that failed; smaller ones have their colour alone. */
  private drawFailures(context: CanvasRenderingContext2D, height: number): void {
    const size = Math.min(this.cellWidth, this.cellHeight) / 2 - 1.5;
    context.strokeStyle = this.theme.panel;
    context.lineWidth = 1.2;
    context.beginPath();
    this.forCells(height, ({ failed }, row, x, y) => {
      if (failed?.[row] !== 1) return;
      context.moveTo(x - size, y - size);
      context.lineTo(x + size, y + size);
      context.moveTo(x + size, y - size);
      context.lineTo(x - size, y + size);
    });
    context.stroke();
  }

  private drawScores(context: CanvasRenderingContext2D, height: number): void {
    context.font = FONT;
    context.textAlign = "center";
    context.textBaseline = "middle";
    this.forCells(height, ({ scores, failed }, row, x, y) => {
      const value = scores[row] ?? Number.NaN;
      if (Number.isNaN(value) || failed?.[row] === 1) return;
      const [red, green, blue] = ramp(this.theme, this.share(value));
      context.fillStyle = 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#000" : "#fff";
      context.fillText(String(Number(value.toPrecision(3))), x, y, this.cellWidth - 2);
    });
  }

  private drawNames(context: CanvasRenderingContext2D, width: number, height: number): void {
    const { data, theme } = this;
    context.fillStyle = theme.panel;
    context.fillRect(0, 0, width, TOP);
    context.fillRect(0, 0, this.gutter, height);
    context.font = FONT;
    context.textBaseline = "middle";
    context.fillStyle = theme.quiet;
    context.textAlign = "center";
    const every = Math.max(1, Math.ceil(30 / this.cellWidth));
    const from = Math.ceil(Math.floor(this.left / this.cellWidth) / every) * every;
    for (let column = from; column < this.columns.length && this.x(column) < width; column += every) {
      const room = every * this.cellWidth - 4;
      context.fillText(this.columns[column]?.name ?? "", this.x(column + 0.5), TOP / 2, room);
    }
    context.textAlign = "right";
    context.fillText("candidate", this.gutter - 6, TOP / 2);
    context.save();
    context.beginPath();
    context.rect(0, TOP - 6, this.gutter - 4, height);
    context.clip();
    context.textAlign = "right";
    const step = Math.max(1, Math.ceil(NAME_HEIGHT / this.cellHeight));
    const first = Math.ceil(Math.floor(this.top / this.cellHeight) / step) * step;
    const own = [this.cursor.line, this.hovered].filter((line) => line !== null);
    const near = (line: number) => own.some((each) => Math.abs(each - line) * this.cellHeight < NAME_HEIGHT);
    for (let line = first; line < data.order.length && this.y(line) < height; line += step) {
      if (!near(line)) this.drawName(context, line);
    }
    context.fillStyle = theme.ink;
    for (const line of own) this.drawName(context, line);
    context.restore();
  }

  private drawName(context: CanvasRenderingContext2D, line: number): void {
    const row = this.data.order[line] as number;
    const length = Math.floor((this.gutter - 8) / 7);
    const shown = oneLine(this.data.labels[row] || this.data.names[row] || "\u2026", length);
    context.fillText(shown, this.gutter - 6, this.y(line + 0.5));
  }

  private drawCursor(context: CanvasRenderingContext2D, width: number, height: number): void {
    const x = this.x(this.cursor.column);
    const y = this.y(this.cursor.line);
    if (x < this.gutter - this.cellWidth || y < TOP - this.cellHeight || x > width || y > height) return;
    const [wide, high] = [Math.max(5, this.cellWidth), Math.max(5, this.cellHeight)];
    const [left, top] = [x + this.cellWidth / 2 - wide / 2, y + this.cellHeight / 2 - high / 2];
    context.lineWidth = 3;
    context.strokeStyle = this.theme.panel;
    context.strokeRect(left - 1, top - 1, wide + 2, high + 2);
    context.lineWidth = 1.5;
    context.strokeStyle = this.theme.ink;
    context.strokeRect(left - 1, top - 1, wide + 2, high + 2);
  }

  private share(value: number): number {
    const { low, high } = this.data;
    return high > low ? Math.max(0, Math.min(1, (value - low) / (high - low))) : 1;
  }

  private tile(columns: readonly Column[], number: number, lines: number): HTMLCanvasElement {
    const tiles = this.tiles.get(columns) ?? [];
    this.tiles.set(columns, tiles);
    const known = tiles[number];
    if (known !== undefined) return known;
    const { order } = this.data;
    const made = document.createElement("canvas");
    made.width = columns.length;
    made.height = lines;
    const context = made.getContext("2d");
    if (context !== null) {
      const image = new ImageData(columns.length, lines);
      const pixels = new Uint32Array(image.data.buffer);
      // as the 32 bits of a pixel, in the byte order of canvases on little-endian machines: all that browsers run on
      const shades = Uint32Array.from({ length: SHADES }, (_, shade) => bits(ramp(this.theme, shade / (SHADES - 1))));
      const crossed = bits(this.theme.failed);
      for (const [column, { scores, failed }] of columns.entries()) {
        for (let line = 0; line < lines; line += 1) {
          const row = order[number * TILE + line] as number;
          const score = scores[row] as number;
          if (failed?.[row] === 1) pixels[line * columns.length + column] = crossed;
          else if (!Number.isNaN(score)) {
            const shade = Math.round(this.share(score) * (SHADES - 1));
            pixels[line * columns.length + column] = shades[shade] as number;
          }
        }
      }
      context.putImageData(image, 0, 0);
    }
    tiles[number] = made;
    return made;
  }
}

function bits([red, green, blue]: Rgb): number {
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

function hatched(context: CanvasRenderingContext2D, theme: Theme): CanvasPattern | null {
  const stripe = document.createElement("canvas");
  stripe.width = 6;
  stripe.height = 6;
  const brush = stripe.getContext("2d");
  if (brush === null) return null;
  brush.fillStyle = theme.panel;
  brush.fillRect(0, 0, 6, 6);
  brush.strokeStyle = theme.ruleStrong;
  brush.beginPath();
  for (const from of [-6, 0, 6]) {
    brush.moveTo(from, 6);
    brush.lineTo(from + 6, 0);
  }
  brush.stroke();
  return context.createPattern(stripe, "repeat");
}

/** The width that the names of rows take. */
function gutterOf(width: number, { labels }: MapData): number {
  const wide = labels.some((label) => label !== "") ? Math.min(400, 0.34 * width) : 84;
  return width < 500 ? Math.max(70, wide) : wide;
}
