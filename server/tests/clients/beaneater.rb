# Ruby's beaneater. usage: ruby beaneater.rb PORT
require 'beaneater'

def check(what)
  raise 'not as expected' unless what
end

beanstalk = Beaneater.new("127.0.0.1:#{ARGV[0]}")
tube = beanstalk.tubes['ruby']
id = tube.put('from ruby', pri: 5, delay: 0, ttr: 60)[:id]
job = tube.reserve(5)
check(job.id == id && job.body == 'from ruby')
job.touch
job.release(pri: 7, delay: 0)
job = tube.reserve(5)
check(job.stats.pri == 7 && job.stats.releases == 1)
job.bury
check(tube.peek(:buried).id == id)
tube.kick(3)
check(tube.stats.current_jobs_ready == 1)
tube.pause(0)
tube.reserve(5).delete
check(beanstalk.jobs.find(id).nil?)
check(beanstalk.tubes.all.map(&:name).include?('default'))
beanstalk.close
puts 'beaneater: passed'
