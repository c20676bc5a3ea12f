  var documents = {prediction: prediction_document, beside: beside_document, plan: plan_document, capacity: capacity_document,
                   comparison: comparison_document, validation: validation_document};
  /// Where nothing draws text: as wide as it is in DejaVu Sans, the widest of usual sans-serif fonts (its digits take
  /// 0.636 em, its spaces 0.318).
  function measured_text(text, font) {
    var size = parseFloat((/([0-9.]+)px/.exec(font) || [0, 12])[1]), spaces = text.split(' ').length - 1;
    return {width: size * (0.636 * (text.length - spaces) + 0.318 * spaces)};
  }

  return {
    themes: themes,
    /// All that a report shows beside its verdict.
    document: function (data) { return documents[data.kind](data); },
    /// {head, rows} as CSV, sizes in plain bytes. A text that a spreadsheet would compute gets a ' before it.
    csv: function (table) {
      function is_size(cell) { return cell !== null && cell !== undefined && cell.bytes !== undefined; }
      var head = table.head.map(function (name, at) {
        return name + (table.rows.some(function (cells) { return is_size(cells[at]); }) ? ' (B)' : '');
      });
      return [head].concat(table.rows).map(function (cells) {
        return cells.map(function (cell) {
          if (typeof cell === 'number') return cell;
          var text = String(is_size(cell) ? cell.bytes : cell);
          if (/^[=+\-@\t\r]/.test(text) && !isFinite(text)) text = "'" + text;
          return /[",\r\n]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text;
        }).join(',');
      }).join('\n') + '\n';
    },
    /// Every figure as SVG and CSV, every table as CSV and Markdown: handed to `put` as name and text.
    write: function (data, echarts, put) {
      var self = this;
      echarts.setPlatformAPI({measureText: measured_text});
      this.document(data).sections.forEach(function (section) {
        (section.figures || []).forEach(function (figure) {
          var chart = echarts.init(null, null, {renderer: 'svg', ssr: true, width: 900, height: figure.height});
          chart.setOption(self.on_paper(figure.option(themes.light, figure.range, 400)));
          put(figure.id + '.svg', self.svg(chart));
          chart.dispose();
          if (figure.table) put(figure.id + '.csv', self.csv(figure.table()));
        });
        (section.tables || []).forEach(function (table) {
          put(table.id + '.csv', self.csv(table));
          put(table.id + '.md', self.markdown(table));
        });
      });
    },
    /// Programs other than browsers know no dominant-baseline: letters of usual fonts reach 0.7 em above theirs.
    svg: function (chart) {
      return chart.renderToSVGString().replace(/dominant-baseline="central"/g, 'dy="0.35em"');
    },
    /// Without what only helps a pointer.
    on_paper: function (option) {
      option.backgroundColor = '#ffffff';
      option.dataZoom = [];
      return option;
    },
    /// Of the texts nothing is HTML, a link or a picture.
    markdown: function (table) {
      function plain(cell) {
        return escaped(cell).replace(/>/g, '&gt;').replace(/\|/g, '\\|').replace(/\]\(/g, ']\\(').replace(/[\r\n]+/g, ' ');
      }
      function line(cells) { return '| ' + cells.map(plain).join(' | ') + ' |\n'; }
      return line(table.head) + '|' + table.head.map(function () { return '---|'; }).join('') + '\n' +
             table.rows.map(line).join('');
    }
  };
})();
