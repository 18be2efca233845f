// Draws the letter of each curve at its end, so that colour is not needed to tell curves apart.

import type uPlot from "uplot";

const SIZE_PX = 15;

interface Mark {
  letter: string | undefined;
  color: string;
}

/** `marks`: one for each series of the plot. */
export function drawLetters(plot: uPlot, marks: Mark[], ink: string, font: string): void {
  const size = SIZE_PX * devicePixelRatio;
  const ends = marks
    .flatMap((mark, index) => {
      const values = plot.data[index + 1] ?? [];
      const last = values.findLastIndex((value) => value !== null && value !== undefined);
      if (!mark.letter || last < 0) return [];
      return [{ ...mark, x: plot.valToPos(plot.data[0][last]!, "x", true) + size * 0.85, y: plot.valToPos(values[last]!, "y", true) }];
    })
    .sort((a, b) => a.y - b.y);
  apart(ends, size + 1, plot.bbox.top + plot.bbox.height - size / 2);
  const { ctx } = plot;
  ctx.save();
  ctx.font = `650 ${size * 0.72}px ${font}`;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  for (const { letter, color, x, y } of ends) {
    ctx.fillStyle = color;
    ctx.beginPath();
    ctx.roundRect(x - size / 2, y - size / 2, size, size, size / 4);
    ctx.fill();
    ctx.fillStyle = ink;
    ctx.fillText(letter!, x, y + size * 0.05);
  }
  ctx.restore();
}

/** Moves places, sorted from the top, so that none covers another beside it, and none is below the bottom. */
function apart(places: { x: number; y: number }[], distance: number, bottom: number): void {
  const nearest = (of: { x: number }, others: typeof places) => others.findLast((other) => Math.abs(of.x - other.x) < distance);
  places.forEach((place, index) => {
    place.y = Math.max(place.y, (nearest(place, places.slice(0, index))?.y ?? -Infinity) + distance);
  });
  places.toReversed().forEach((place, index, all) => {
    place.y = Math.min(place.y, (nearest(place, all.slice(0, index))?.y ?? bottom + distance) - distance);
  });
}
