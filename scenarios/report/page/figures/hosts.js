  // -- hosts ------------------------------------------------------------------------------------------------------------

  function host_figure(data) {
    var c = clock(data.step.length_ns);
    var stages = data.stages.filter(function (stage) {
      return sums(stage.memory.pinned_kib).concat(sums(stage.memory.pageable_kib)).some(function (v) { return v > 0; });
    });
    if (!stages.length) return null;
    return {
      id: 'host-memory', title: 'Memory on the host',
      caption: 'Of one rank of each stage: pinned in PyTorch’s powers of two, and pageable.',
      height: 280,
      option: function (theme) {
        var series = [];
        stages.forEach(function (stage, at) {
          var times = sums(stage.memory.time_ns);
          [['pinned', 'pinned_kib', 'solid'], ['pageable', 'pageable_kib', 'dashed']].forEach(function (kind) {
            var values = sums(stage.memory[kind[1]]);
            if (!values.some(function (v) { return v > 0; })) return;
            series.push({name: 'rank ' + stage.memory.rank + ', ' + kind[0], type: 'line', step: 'end', symbol: 'none',
                         color: slot_colours[at % slot_colours.length], lineStyle: {width: 1.5, type: kind[2]},
                         animation: false,
                         data: values.map(function (v, i) { return [times[i] / c.scale, v / 1048576]; })});
          });
        });
        return {
          animation: false,
          grid: {left: 48, right: 14, top: 36, bottom: 64},
          legend: legend(theme, series.map(function (s) { return s.name; }), {icon: 'roundRect', itemHeight: 3}),
          xAxis: time_axis(theme, c, data.step.length_ns / c.scale, {}),
          yAxis: axis(theme, {type: 'value'}),
          dataZoom: zoom(theme, 0, 'none'),
          tooltip: tooltip(theme, {trigger: 'axis', valueFormatter: function (v) { return v.toFixed(2) + ' GiB'; }}),
          series: series
        };
      }
    };
  }

