  var documents = {prediction: prediction_document, beside: beside_document, plan: plan_document, capacity: capacity_document,
                   comparison: comparison_document, validation: validation_document};
  /// Where nothing draws text: as wide as it is in DejaVu Sans, the widest of usual sans-serif fonts (its digits take
  /// 0.636 em, its spaces 0.318).
  function measured_text(text, font) {
    var size = parseFloat((/([0-9.]+)px/.exec(font) || [0, 12])[1]), spaces = text.split(' ').length - 1;
    return {width: size * (0.636 * (text.length - spaces) + 0.318 * spaces)};
  }

  // -- on paper ---------------------------------------------------------------------------------------------------------

  /// Widths in inches of a column and of both columns of a page; at 96 pixels each, 10 of them are letters of 7.5 pt.
  var paper_widths = [['column', 3.25], ['page', 6.75]], pixels_per_inch = 96, paper_letters = 10;
  function listed(one_or_more) { return one_or_more === undefined ? [] : [].concat(one_or_more); }
  function with_letters(style) {
    style = style || {};
    style.fontSize = paper_letters;
    return style;
  }
  /// The option of a figure in letters of one size, below a legend of as many lines as that width asks for. Returns how
  /// much higher the figure gets.
  function set_for_paper(option, width) {
    var higher = 0;
    listed(option.xAxis).concat(listed(option.yAxis)).forEach(function (its) {
      its.axisLabel = with_letters(its.axisLabel);
      its.nameTextStyle = with_letters(its.nameTextStyle);
    });
    listed(option.visualMap).forEach(function (its) { its.textStyle = with_letters(its.textStyle); });
    listed(option.series).forEach(function (its) {
      if (its.label) its.label = with_letters(its.label);
      if (its.markLine && its.markLine.label) its.markLine.label = with_letters(its.markLine.label);
    });
    if (option.legend && option.legend.show !== false && option.legend.data && !Array.isArray(option.grid)) {
      var lines = 1, used = 0, gap = 6, between = 5, room = width - 4;
      option.legend.data.forEach(function (name) {
        var takes = option.legend.itemWidth + between + measured_text(String(name), paper_letters + 'px').width + gap;
        if (used > 0 && used + takes > room) {
          ++lines;
          used = 0;
        }
        used += takes;
      });
      option.legend.textStyle = with_letters(option.legend.textStyle);
      option.legend.itemGap = gap;
      option.legend.width = room;
      var top = 12 + lines * (paper_letters + gap + 2);
      higher = Math.max(0, top - option.grid.top);
      option.grid.top = top;
    }
    return higher;
  }
  /// A table for LaTeX's package booktabs.
  function latex(table) {
    var special = {'\\': '\\textbackslash{}', '~': '\\textasciitilde{}', '^': '\\textasciicircum{}', '\u202f': '\\,', '\u2019': "'",
                   '\u00d7': '$\\times$', '\u00b5': '$\\mu$'};
    function plain(cell) {
      return String(cell).replace(/[\r\n]+/g, ' ').replace(/[\\&%$#_{}~^\u202f\u2019\u00d7\u00b5]/g, function (found) {
        return special[found] || '\\' + found;
      });
    }
    function line(cells) { return '  ' + cells.map(plain).join(' & ') + ' \\\\\n'; }
    var columns = table.head.map(function (h, at) {
      return table.rows.some(function (cells) { return /^[a-z(]/i.test(String(cells[at])); }) ? 'l' : 'r';
    });
    return '% ' + table.title.replace(/[\r\n]+/g, ' ') + '; takes \\usepackage{booktabs}\n' + '\\begin{tabular}{' + columns.join('') + '}\n  \\toprule\n' +
           line(table.head) + '  \\midrule\n' + table.rows.map(line).join('') + '  \\bottomrule\n\\end{tabular}\n';
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
    /// Every figure as SVG of the widths that papers have, every table for LaTeX.
    paper: function (data, echarts, put) {
      var self = this;
      echarts.setPlatformAPI({measureText: measured_text});
      this.document(data).sections.forEach(function (section) {
        (section.figures || []).forEach(function (figure) {
          paper_widths.forEach(function (size) {
            var width = size[1] * pixels_per_inch, option = self.on_paper(figure.option(themes.light, figure.range, 400));
            var height = figure.height + set_for_paper(option, width);
            var chart = echarts.init(null, null, {renderer: 'svg', ssr: true, width: width, height: height});
            chart.setOption(option);
            put(figure.id + '-' + size[0] + '.svg', self.svg(chart).replace(/^<svg width="[^"]*" height="[^"]*"/,
                '<svg width="' + size[1] + 'in" height="' + (height / pixels_per_inch).toFixed(3) + 'in"'));
            chart.dispose();
          });
        });
        (section.tables || []).forEach(function (table) { put(table.id + '.tex', latex(table)); });
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
